# `make layers`: checks that a room includes only itself and the rooms before it in the list below.  Of the engine, the
# command line may include only the public header, and wasm/ also the rooms api and template.  It also fails on a room
# that is not in the list, and on "header.h" without its room.  quant is before gguf, because the tensor directory needs
# the block sizes of the types.
BEGIN {
    n = split("base threads quant gguf repack kernels tokenizer model forward reference sampler trace dump template " \
              "grammar diagnose diff check api cli", names, " ")
    for (i = 1; i <= n; i++) rank[names[i]] = i
}
function refuse(why) { printf "%s:%d: %s\n", FILENAME, FNR, why; bad++ }
FNR == 1 {
    split(FILENAME, path, "/")
    room = path[1] == "src" ? path[2] : ""
    if (room != "" && !(room in rank)) refuse("room " room " has no place in tools/layers.awk")
}
/^[ \t]*#[ \t]*include[ \t]*"/ {
    split($0, quoted, "\"")
    target = quoted[2]
    if (target == "plumb.h") next
    if (room == "") {
        if (target ~ /\// && target !~ /^(api|template)\//) refuse("wasm/ sees plumb.h, api and template, not " target)
    } else if (split(target, at, "/") != 2 || !(at[1] in rank)) refuse("write \"room/file.h\", not \"" target "\"")
    else if (room == "cli" && at[1] != "cli") refuse("the command line sees only plumb.h of the engine, not " target)
    else if (rank[at[1]] > rank[room]) refuse("room " room " includes " target " which comes after it")
}
END { exit bad > 0 }
