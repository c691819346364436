# `make layers`: checks that a room includes only itself and the rooms before it in the lists below, which are also in
# the order of the wings.  Only the truth tools and what uses them include plumb_truth.h.  Of the library, the command
# line may include only the public headers, and wasm/ also the rooms template and grammar.  It also fails on a room that
# is not in the lists, and on "header.h" without its room.  quant is before gguf, because the tensor directory needs the
# block sizes of the types.
BEGIN {
    wing("engine", "base threads quant gguf repack kernels tokenizer model forward sampler speculate api")
    wing("answers", "template grammar")
    wing("truth", "reference trace mistakes dump diagnose diff check")
    wing("cli", "cli")
}
function wing(name, rooms, names, i) {
    for (i = 1; i <= split(rooms, names, " "); i++) { rank[names[i]] = ++n; wing_of[names[i]] = name }
}
function refuse(why) { printf "%s:%d: %s\n", FILENAME, FNR, why; bad++ }
FNR == 1 {
    n_path = split(FILENAME, path, "/")
    room = path[1] == "src" ? path[n_path - 1] : ""
    if (room != "" && !(room in rank)) refuse("room " room " has no place in tools/layers.awk")
    else if (room != "" && path[2] != wing_of[room]) refuse("room " room " is of the wing " wing_of[room])
}
/^[ \t]*#[ \t]*include[ \t]*"/ {
    split($0, quoted, "\"")
    target = quoted[2]
    if (target == "plumb.h") next
    if (target == "plumb_truth.h") {
        if (wing_of[room] ~ /engine|answers/) refuse("room " room " of the " wing_of[room] " includes plumb_truth.h")
    } else if (room == "") {
        if (target ~ /\// && target !~ /^(api|template|grammar|trace)\//) {
            refuse("wasm/ sees the public headers, api, template, grammar and trace, not " target)
        }
    } else if (split(target, at, "/") != 2 || !(at[1] in rank)) refuse("write \"room/file.h\", not \"" target "\"")
    else if (room == "cli" && at[1] != "cli") refuse("the command line sees only the public headers, not " target)
    else if (rank[at[1]] > rank[room]) refuse("room " room " includes " target " which comes after it")
}
END { exit bad > 0 }
