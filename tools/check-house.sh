# House checks of tools/check: formatting, sizes of data in git, paths of one machine, and documents that must agree with
# the code. Sourced, not run; each function is one check: exit code 0, 1, or 77 with the reason on its last line.
# shellcheck shell=bash

# Files of the repository, with those that are not committed yet.
house_files() {
    if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        git ls-files --cached --others --exclude-standard
    else
        find . -type f -not -path './.git/*' -not -path './build*' -not -path './bench/work/*' -not -path './.venv-*' -not -path './subprojects/*' | sed 's|^\./||'
    fi
}

# data_size FOLDER MEGABYTES
data_size() {
    local bytes
    bytes=$(find "$1" -type f -printf '%s\n' | awk '{ n += $1 } END { print n + 0 }')
    echo "$1 holds $bytes bytes; at most ${2}000000 are allowed"
    [ "$bytes" -gt 0 ] && [ "$bytes" -le "${2}000000" ]
}

no_machine_paths() {
    local found
    found=$(house_files | grep -vE '^(tests/data|models/demo)/|^tools/check-house\.sh$' | xargs -d '\n' grep -nIE '(^|[^A-Za-z0-9_.$}~-])/(home|root|work|Users)/[A-Za-z0-9_]' 2>/dev/null)
    [ -z "$found" ] || { printf 'paths of one machine:\n%s\n' "$found"; return 1; }
}

no_conflict_markers() {
    local found
    found=$(house_files | xargs -d '\n' grep -nIE '^(<{7} |>{7} )')
    [ -z "$found" ] || { printf 'left by a merge:\n%s\n' "$found"; return 1; }
}

# A `grep -q` behind a pipe fails by chance under pipefail: see packages_present in tools/packages.sh.
no_grep_that_closes_a_pipe() {
    local found
    found=$(house_files | grep -E '^(tools|bench|tests|\.ci)/' | xargs -d '\n' grep -lIE '^#!/.*\b(ba)?sh|^# shellcheck shell' |
        xargs -d '\n' grep -nE '[^`] *\|[[:space:]]*grep -[A-Za-z]*q')
    [ -z "$found" ] || { printf 'grep -q behind a pipe:\n%s\n' "$found"; return 1; }
}

# Relative links of the documents lead to files that exist.
links_lead_somewhere() {
    local file link bad=0
    while read -r file; do
        while read -r link; do
            [ -e "$(dirname "$file")/$link" ] || { echo "$file: $link does not exist"; bad=1; }
        done < <(sed -E 's/`[^`]*`//g' "$file" | grep -oE '\]\([^)#: ]+' | cut -c3-)
    done < <(house_files | grep -E '\.md$')
    return $bad
}

# docs/cli.md is what the command's own help says.
cli_page_is_current() {
    tools/docs-cli "$1/tools/tern/tern" | diff docs/cli.md - || { echo "docs/cli.md is not current: run tools/docs-cli BUILD/tools/tern/tern > docs/cli.md"; return 1; }
}

# README.md tells the figures of docs/bench.
readme_ratios_are_current() {
    tools/docs-ratios | diff <(sed -n '/<!-- ratios:begin -->/,/<!-- ratios:end -->/p' README.md | sed '1d;$d') - ||
        { echo "README.md has other figures than docs/bench: run tools/docs-ratios --write"; return 1; }
}

# The C of README.md stands in an example, which tests/install_test builds and runs.
readme_code_is_tested() {
    local code
    code=$(awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' README.md)
    [ -n "$code" ] || { echo "README.md has no C"; return 1; }
    case $(sed 's/^    //' examples/txt2img.c) in
        *"$code"*) ;;
        *) echo "README.md: the lines of C are not those of examples/txt2img.c"; return 1 ;;
    esac
}

# fuzz_targets FOLDER SECONDS: every fuzz target, of clang's build with sanitizers.
fuzz_targets() {
    command -v clang >/dev/null || { echo "libFuzzer needs clang, which is not installed"; return 77; }
    tests/fuzz/run --build "$1" "$2"
}

# The formatter's major version decides how code looks, so only one counts; where it is to be had it is installed.
packages_install_formatter() {
    tools/format --version >/dev/null 2>&1 && return
    packages_install_known 'clang-format-14 clang-format-14'
}

house_checks() {
    one "formatting" tools/format --check
    one "tests/data: at most 12 MB" data_size tests/data 12
    one "models/demo: at most 20 MB" data_size models/demo 20
    one "no paths of one machine" no_machine_paths
    one "no marks of a merge" no_conflict_markers
    one "no grep -q behind a pipe" no_grep_that_closes_a_pipe
    one "links in documents" links_lead_somewhere
    one "docs/cli.md is current" cli_page_is_current "$1"
    one "README.md: its ratios are those of docs/bench" readme_ratios_are_current
    one "README.md: its C is tested" readme_code_is_tested
}
