# Reads meson's testlog.txt of a run with CMOCKA_MESSAGE_OUTPUT=SUBUNIT: a cmocka program counts its test functions, any
# other program counts as one. Prints what failed or was skipped, then the line "passed failed skipped".

function case_line() { return substr($0, index($0, ": ") + 2) }

function fail(what) {
    failed++
    printf "   FAILED  %s%s (%s)\n%s", name, what, result, text
}

function end_program() {
    if (name == "")
        return
    if (open != "")
        fail(": " open ": the program ended in it")
    else if (!cases && result == "exit status 77") {
        skipped++
        printf "   skipped %s: %s\n", name, last
    } else if (result != "exit status 0" && !failures)
        fail(cases ? ": outside its cases" : "")
    else if (!cases)
        passed++
    name = ""
}

/^=+ +[0-9]+\/[0-9]+ +=+$/ { end_program(); part = "head"; result = "no result"; open = text = last = ""; cases = failures = 0; next }
/^=+$/ && length($0) == 78 { end_program(); part = ""; next }
/^-+ +std(out|err) +-+$/ && length($0) >= 78 { part = $2; next }
part == "head" && /^test: / { name = $NF; next } # "tern:quick / ops": the suite is left away
part == "head" && /^result: / { result = $0; sub(/^result: */, "", result); next }
part == "head" || part == "" { next }
part == "stdout" && /^test: / && broken { broken = 0; fail(": " open) } # its closing bracket was not seen
part == "stdout" && /^test: / { open = case_line(); cases++; text = ""; last = ""; next }
part == "stdout" && open != "" && $0 == "success: " open { passed++; open = text = ""; next }
part == "stdout" && open != "" && $0 == "skip: " open {
    skipped++
    printf "   skipped %s: %s: %s\n", name, open, last == "" ? "no reason given" : last
    open = text = ""
    next
}
part == "stdout" && open != "" && /^(failure|error): / { failures++; broken = 1; text = text "           " $0 "\n"; next }
{ text = text "           " $0 "\n"; if ($0 != "") last = $0 }
part == "stdout" && broken && /\]$/ { broken = 0; fail(": " open); open = text = "" }

END { end_program(); print passed + 0, failed + 0, skipped + 0 }
