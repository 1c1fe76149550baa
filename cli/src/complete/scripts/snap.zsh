#compdef snap
# Completion of `snap` for zsh. Save it as _snap in a folder of $fpath, or load
# it after compinit with
#     source <(snap completions zsh)

_snap() {
    local line files value about
    local -a told whole whole_shown open open_shown described
    told=("${(@f)$(command snap __tab zsh -- "${(@Q)words[2,CURRENT-1]}" \
        "${(Q)PREFIX}" 2>/dev/null)}")
    for line in "${told[@]}"; do
        value=${${line#?}%%$'\t'*}
        about=
        [[ $line == *$'\t'* ]] && about="  -- ${line#*$'\t'}" described=(-l)
        case $line in
            ':'*) files=$line ;;
            '='*) whole+=("$value") whole_shown+=("$value$about") ;;
            '+'*) open+=("$value") open_shown+=("$value$about") ;;
        esac
    done
    (($#whole)) && compadd -V snap $described -d whole_shown -a -- whole
    (($#open)) && compadd -V snap-open $described -S '' -d open_shown -a -- open
    (($#whole + $#open)) && return 0
    [[ $PREFIX == --*=* ]] && compset -P 1 '*='
    case $files in
        :files) _files ;;
        :folders) _files -/ ;;
        *) return 1 ;;
    esac
}

# Read by `source`, it says what it is for; found in $fpath, it is called.
if [[ $funcstack[1] == _snap ]]; then
    _snap "$@"
else
    compdef _snap snap
fi
