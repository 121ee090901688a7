# SPDX-License-Identifier: MIT
# Completion for gpualloc in fish: commands, their options as `--help` lists them, backends where a
# spec is expected, and behind the program's name its own completion.

# Print each command with its explanation.
function __gpualloc_commands
    gpualloc --help 2>/dev/null | sed -nE '/^Commands:/,/^$/s/^  ([a-z]+) +(.*)/\1\t\2/p'
end

function __gpualloc_backends
    gpualloc list 2>/dev/null |
        sed -nE 's/^  ([A-Za-z0-9_-]+)[^ ]* +(.*)/\1\t\2/p' | sort -u
end

function __gpualloc_workloads
    printf '%s\n' coalesce lfht spgemm
    gpualloc bench --list 2>/dev/null | string replace -rf '^(\S+) .*' '$1'
end

# Print the place of the program's name among the words of `gpualloc run` or `compare`, before the
# cursor.
function __gpualloc_program_place
    set -l words (commandline -opc)
    contains -- "$words[2]" run compare; or return
    set -l valued (gpualloc $words[2] --help 2>/dev/null | string replace -rf '^ +(--[a-z]+)=.*' '$1')
    set -l at 3
    while set -q words[$at]; and string match -q -- '-?*' $words[$at]
        if test "$words[$at]" = --
            set at (math $at + 1)
            break
        end
        contains -- $words[$at] $valued; and set at (math $at + 1)
        set at (math $at + 1)
    end
    set -q words[$at]; and echo $at
end

# True if gpualloc's command is $argv[1], and its program, if it has one, is not yet named.
function __gpualloc_in
    set -l words (commandline -opc)
    set -q words[2]; and test $words[2] = $argv[1]; and not __gpualloc_program_place >/dev/null
end

function __gpualloc_in_program_name
    begin
        __gpualloc_in run; or __gpualloc_in compare
    end
    and not string match -q -- '-*' (commandline -ct)
end

# Complete the command line of the program.
function __gpualloc_program
    set -l words (commandline -opc)
    set -l program (string escape -- $words[(__gpualloc_program_place)..-1])
    complete -C (string join -- ' ' $program (commandline -ct))
end

# The options of one command, which are read from its help.
function __gpualloc_add_options -a name
    gpualloc $name --help 2>/dev/null |
        string replace -rf '^ +(?:-., )?--([a-z-]+)(\[?)=?([A-Z]*).*' '$1:$2:$3' |
        while read -d : -l option optional value
            set -l rest
            switch "$optional$value"
                case ''
                case '[FIGURE'
                    set rest -x -a 'bytes blocks peak leaks'
                case PROGRAM
                    set rest -x -a 'none addr2line llvm-symbolizer'
                case '[DEPTH' '[COUNT'
                    set rest -f
                case '[*'
                    set rest -F
                case SPEC
                    set rest -x -a '(__gpualloc_backends)'
                case LEVEL
                    set rest -x -a 'error warn info debug'
                case PLACE
                    set rest -x -a 'host device'
                case FILE
                    set rest -r -F
                case '*'
                    set rest -x
            end
            complete -c gpualloc -n "__gpualloc_in $name" -l $option $rest
        end
end

complete -c gpualloc -f
complete -c gpualloc -n __fish_use_subcommand -a '(__gpualloc_commands)'
complete -c gpualloc -n __fish_use_subcommand -l help
complete -c gpualloc -n __fish_use_subcommand -l version
complete -c gpualloc -n '__gpualloc_in list' -a '(__gpualloc_backends)'
complete -c gpualloc -n '__gpualloc_in bench' -a '(__gpualloc_workloads)'
complete -c gpualloc -n '__gpualloc_in help' -a '(__gpualloc_commands)'
complete -c gpualloc -n '__gpualloc_in trace' -F
complete -c gpualloc -n '__gpualloc_in replay' -F
complete -c gpualloc -n __gpualloc_in_program_name -a '(__fish_complete_command)'
complete -c gpualloc -n __gpualloc_program_place -a '(__gpualloc_program)'
for name in (__gpualloc_commands | string replace -r '\t.*' '')
    __gpualloc_add_options $name
end
