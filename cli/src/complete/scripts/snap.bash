# Completion of `snap` for bash 4 and later. Load it with
#     source <(snap completions bash)

_snap() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            :files) compopt +o nospace -o default 2>/dev/null ;;
            :folders) compopt +o nospace -o dirnames 2>/dev/null ;;
            [+=]*) COMPREPLY+=("${line:1}") ;;
        esac
    done < <(command snap __tab bash "${COMP_LINE:0:COMP_POINT}" "$COMP_WORDBREAKS" \
        "$COMP_TYPE" 2>/dev/null)
    # Candidates come with their spaces, and in an order of their own.
    if ((${#COMPREPLY[@]})); then
        compopt -o nospace +o default +o dirnames 2>/dev/null
    fi
}

complete -o nospace -o nosort -F _snap snap 2>/dev/null || complete -o nospace -F _snap snap
