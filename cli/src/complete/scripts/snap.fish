# Completion of `snap` for fish. Save it as
# ~/.config/fish/completions/snap.fish, or load it with
#     snap completions fish | source

function __snap_complete
    set -l before (commandline --current-process --tokenize --cut-at-cursor)
    set -l token (commandline --current-token --cut-at-cursor)
    set -e before[1]
    set -l files :nothing
    set -l found
    for line in (command snap __tab fish -- $before "$token" 2>/dev/null)
        switch $line
            case ':*'
                set files $line
            case '*'
                set -a found (string sub --start 2 -- $line)
        end
    end
    if set -q found[1]
        printf '%s\n' $found
        return
    end
    # Of --option=value only the value is a path.
    set -l front (string match --regex -- '^--[^=]*=' $token)
    set -l path (string replace --regex -- '^--[^=]*=' '' $token)
    switch $files
        case :files
            set found (__fish_complete_path $path)
        case :folders
            set found (__fish_complete_directories $path '')
    end
    for path in $found
        printf '%s\n' "$front$path"
    end
end

complete --command snap --no-files --keep-order --arguments '(__snap_complete)'
