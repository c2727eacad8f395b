"""Where faults can be put into the program, and the text of a program that has them all: each is behind dat_mutant(N).

Faults are looked for in functions of src, include and kernels as clang reads them. Left out are, by rule:
- what a build without nvcc does not compile (kernels on a GPU);
- what the compiler computes: constexpr variables, template arguments, sizes of arrays, labels of cases,
  conditions of `if constexpr`;
- text for people: arguments of messages, log lines and thrown errors, and the calls that print them (PRINTS);
- hints that change no result (HINTS), and what OpenMP reads: its lines, and the headers of its loops;
- more memory than is needed: a larger number in a call that allocates (ALLOCATES) or in what tells how much is needed
  (AMOUNTS), and a larger result of that; what does not free (FREES, in destructors the condition of it, too);
- limits that somebody chose: of options (from LIMIT on), where a law checks that the one in the table is in force, and whether
  what is just as large as one of CHOSEN still goes;
- measured time: one second more (TIMES), laps of a phase's clock;
- functions of which every fault changes nothing but how long something takes or who computes the same bits (SAME);
- LEFT_OUT, which no test on any machine can judge.
"""

import collections
import importlib.util
import json
import math
import multiprocessing
import os
import random
import re
import shlex

PRINTS = re.compile(r"fail(_with|ure)?|say(_\w+)?|warn(ing)?|print(_\w+)?|info|note|format(_to)?|[fs]?printf|fputs|quoted(_\w+)?")
ALLOCATES = re.compile(r"allocate\w*|request_(scratch|workspace)|small")
AMOUNTS = re.compile(r"memory|scratch|weight_count|bytes_needed|(workspace|scratch|weight|reserve|rgb)_bytes|bytes_handed_over")
FREES = re.compile(r"\{?\s*(\(void\)\s*)?(::)?(destroy|close|free|munmap)\([^;]*\);?\s*\}?")
LIMIT = 1000
CHOSEN = re.compile(r"(\w+::)*k(Most|Longest|Largest|Max|Least|Smallest)\w*")
TIMES = re.compile(r"src/(?!forecast/|verbs/|record/).*::\w*seconds\w*")
HINTS = re.compile(r"reserve|shrink_to_fit|madvise|posix_\w+|setvbuf|\w*prefetch\w*|yield|sleep_for|omp_set_\w+|lap")
SAME = {"src/backend/cpu/convolution3x3.hpp Convolution3x3::parts": "parts that the threads share",
        "kernels/noisy_image.hpp NormalNoise::rows": "rows of draws, of which one too many adds no number",
        "include/dat/loader.hpp BatchReader::threads": "threads that read images",
        "src/assess/broken_images.cpp piece_of": "images that ranks hand over at a time",
        "src/backend/cuda/trial_clock.cpp TrialClock::time": "how often a candidate is timed",
        "src/backend/cuda/trial_clock.cpp TrialClock::warm_up": "how long a GPU works before that",
        "src/communicate/node/node_window.cpp NodeWindow::nap": "how a rank waits",
        "src/data/images/decode.cpp Large::Large": "large images that are in memory at once",
        "src/data/images/decode.cpp Large::~Large": "memory that is kept for the next one",
        "src/data/loader.cpp piece_of": "images that a thread takes at a time",
        "src/files/bytes.hpp rows_at_once": "rows that are in memory at once",
        "src/reduce/buckets.cpp Buckets::move_on": "when messages move on",
        "src/reduce/sums/window.cpp Part::nap": "how a rank waits",
        "src/reduce/sums/window.cpp WindowSums::nap": "the same",
        "src/run/crowding.cpp CoreWait::count": "time that the kernel counts",
        "src/run/crowding.cpp CoreWait::share": "the same",
        "src/run/crowding.hpp CoreWait::begin": "the same",
        "src/start.cpp microseconds_of_a_turn": "how long a thread spins",
        "src/start.cpp pause_once": "the same",
        "src/train/exchange/step_exchange.cpp bucket_of": "elements of a bucket, in any of which sums are the same",
        "src/train/layers/costs.cpp measure_layer_seconds": "measured seconds",
        "src/train/layers/costs.cpp seconds_of_a_sum": "the same",
        "src/train/plan/clock.hpp seconds_now": "the clock",
        "src/train/plan/replica_of.cpp data_threads": "threads that read images",
        "src/train/plan/replica_of.cpp ranks_on_node": "threads of a rank",
        "src/verbs/results/subjects.cpp without_steps": "steps that are kept in memory, of which the last one is looked at"}
LEFT_OUT = {"src/record/pictures/": "how a drawing looks", "src/measure/": "how long something takes",
            "src/backend/cpu/amx_": "instructions that most processors lack"}
OPERATORS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "*": "/", "/": "*", "%": "/",
             "&&": "||", "||": "&&", "&": "|", "|": "&", "<<": ">>", ">>": "<<", "+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=",
             "|=": "&=", "&=": "|="}
FUNCTIONS = {"FUNCTION_DECL", "CXX_METHOD", "CONSTRUCTOR", "DESTRUCTOR", "FUNCTION_TEMPLATE", "CONVERSION_FUNCTION"}
CLASSES = {"CLASS_DECL", "STRUCT_DECL", "CLASS_TEMPLATE"}
FIXED = {"STATIC_ASSERT", "ENUM_CONSTANT_DECL", "FIELD_DECL", "PARM_DECL", "CXX_THROW_EXPR", "TEMPLATE_TYPE_PARAMETER",
         "TEMPLATE_NON_TYPE_PARAMETER", "TYPE_REF", "TEMPLATE_REF", "DECL_REF_EXPR", "TYPE_ALIAS_DECL"}
LITERALS = {"INTEGER_LITERAL", "FLOATING_LITERAL", "CXX_BOOL_LITERAL_EXPR"}
NUMBERS = {"INT", "LONG", "UINT", "ULONG", "FLOAT", "DOUBLE", "USHORT", "UCHAR", "LONGLONG", "ULONGLONG"}

# The table is shared memory where DAT_MUTANT_SEEN names a file: what is killed has said what it came past.
HEADER = """#pragma once
extern unsigned char dat_mutant_on[];
extern unsigned char* dat_mutant_seen;
constexpr bool dat_mutant(int n) {
  if (__builtin_is_constant_evaluated()) return false;
  if (dat_mutant_seen[n] == 0) dat_mutant_seen[n] = 1;
  return dat_mutant_on[n] != 0;
}
"""
TABLE = """
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cstdlib>
unsigned char dat_mutant_on[1 << 16];
static unsigned char dat_mutant_unseen[1 << 16];
unsigned char* dat_mutant_seen = dat_mutant_unseen;
__attribute__((constructor(101))) static void dat_read_mutants() {
  if (const char* text = std::getenv("DAT_MUTANT"))
    for (char* end = nullptr; *text != 0; text = *end != 0 ? end + 1 : end) dat_mutant_on[std::strtol(text, &end, 10) & 0xffff] = 1;
  struct stat file = {};
  const char* path = std::getenv("DAT_MUTANT_SEEN");
  const int opened = path != nullptr ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (opened < 0 || fstat(opened, &file) != 0) return;
  void* all = mmap(nullptr, file.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
  if (all != MAP_FAILED) dat_mutant_seen = static_cast<unsigned char*>(all);
  close(opened);  // a program that starts with its output closed would write there
}
"""


def other_literal(text, negated=False):
    """n -> n + 1, true -> false; empty for what is neither a number nor a truth. negated: a minus stands before it. -1 becomes 0: it
    means none, and -2 would mostly mean the same."""
    if negated and text == "1":
        return "0"
    if text in ("true", "false"):
        return "false" if text == "true" else "true"
    if whole := re.fullmatch(r"(?i)(0x[0-9a-f']+|0[0-7]*|[1-9][0-9']*)(u?l{0,2}|u?z)", text):
        return str(int(re.sub("^0(?=[0-7])", "0o", whole[1]).replace("'", ""), 0) + 1) + whole[2]
    if re.fullmatch(r"(?i)[0-9.']+(e[-+]?[0-9]+)?f?", text):
        value = float(text.rstrip("fF").replace("'", ""))
        return repr(value + 1 if abs(value) < 1e6 else 2 * value) + ("F" if text[-1] in "fF" else "")
    return ""


class Walk:
    """The candidates of one translation unit, by file."""

    def __init__(self, tree, files):
        self.tree, self.files, self.found = tree + "/", files, {}
        self.refers = self.larger = self.frees = False

    def unit(self, root):
        for cursor in root.get_children():
            name = os.path.normpath(cursor.location.file.name).removeprefix(self.tree) if cursor.location.file else ""
            if name in self.files and name.startswith(("src/", "include/", "kernels/")) and not name.startswith(tuple(LEFT_OUT)):
                self.name, self.text = name, self.files[name]
                self.visit(cursor, "", "", False)
        return self.found

    def part(self, begin, end):
        return self.text[begin:end].decode(errors="replace")

    def beside(self, begin, end):
        """The characters before and after an expression."""
        return self.text[:begin].rstrip()[-1:].decode(errors="replace"), self.text[end:end + 200].lstrip()[:1].decode(errors="replace")

    def add(self, group, kind, function, cursor, **more):
        """more: wrap, with # for the number and @ for the text; or the operator's place and the other one."""
        begin, end = cursor.extent.start.offset, cursor.extent.end.offset
        pragma = self.text[self.text.rfind(b"\n", 0, begin) + 1:begin].startswith(b"#pragma")
        if function and begin < end and not pragma and f"{self.name} {function}" not in SAME and not self.text[:end].endswith(b"= default"):
            self.found.setdefault(self.name, []).append(
                {"file": self.name, "function": function, "group": group, "kind": kind, "begin": begin, "end": end} | more)

    def operator(self, cursor, function, parent, statement):
        left, right = cursor.get_children()
        at, to = left.extent.end.offset, right.extent.start.offset
        sign, kind = self.part(at, to).strip(), left.type.get_canonical().kind.name
        if sign not in OPERATORS or kind == "RECORD" or (kind == "POINTER" and sign in "+-*/%"):
            return
        sides = (self.part(cursor.extent.start.offset, at).strip(), self.part(to, cursor.extent.end.offset).strip())
        if sign in ("<", "<=", ">", ">=") and any(map(CHOSEN.fullmatch, sides)):
            return
        at += self.part(at, to).index(sign)
        # One turn too many would be memory past an array, which need not be seen; one too few is defined.
        other = "< -1 +" if parent == "FOR_STMT" and sign == "<" else OPERATORS[sign]
        self.add("operator", f"{sign} -> {other}", function, cursor, at=at, to=at + len(sign), other=other, void=statement)

    def literal(self, cursor, function, parent):
        text = self.part(cursor.extent.start.offset, cursor.extent.end.offset)
        before, after = self.beside(cursor.extent.start.offset, cursor.extent.end.offset)
        computed = parent not in ("BINARY_OPERATOR", "UNARY_OPERATOR") and (before == "<" or after == ">")
        chosen = self.name.startswith(("src/options/", "src/verbs/")) and self.text[:cursor.extent.start.offset].endswith(b".high = ")
        if self.larger or AMOUNTS.fullmatch(function.split("::")[-1]) or (chosen and (text.startswith("0x") or float(text.replace("'", "")) >= LIMIT)):
            return
        other = other_literal(text, before == "-" and parent == "UNARY_OPERATOR")
        if other and not computed and not (before == "[" and parent == "VAR_DECL"):
            self.add("constant", f"{text} -> {other}", function, cursor, wrap=f"(dat_mutant(#) ? {other} : @)")

    def statement(self, cursor, function):
        begin, end = cursor.extent.start.offset, cursor.extent.end.offset
        called = re.search(r"(\w*)\(", self.part(begin, end) + "(")[1]
        if self.beside(begin, end)[1] == ";" and not HINTS.fullmatch(called) and not re.fullmatch(r"free|munmap|MPI_\w+_free", called):
            self.add("statement", "dropped", function, cursor, wrap="(dat_mutant(#) ? static_cast<void>(0) : static_cast<void>(@))")

    def result(self, value, function):
        kind = value.type.get_canonical().kind.name
        if kind == "BOOL" and not self.refers:
            self.add("result", "result negated", function, value, wrap="(dat_mutant(#) ? !(@) : (@))")
        elif kind in NUMBERS and not self.refers and not AMOUNTS.fullmatch(function.split("::")[-1]) and not TIMES.fullmatch(
                f"{self.name}::{function}"):
            self.add("result", "result + 1", function, value, wrap="(dat_mutant(#) ? (@) + 1 : (@))")

    def computed(self, cursor, children):
        """Whether a condition is the compiler's."""
        return "constexpr" in self.part(cursor.extent.start.offset, children[0].extent.start.offset)

    def condition(self, cursor, children, function):
        if self.computed(cursor, children):
            return
        whole = cursor.kind.name == "CONDITIONAL_OPERATOR"
        if self.frees and len(children) == 2 and FREES.fullmatch(self.part(children[1].extent.start.offset, children[1].extent.end.offset)):
            return
        for child in children[:1 if whole else 2]:
            before, after = self.beside(child.extent.start.offset, child.extent.end.offset)
            if whole and child.extent == cursor.extent:  # both are what a macro becomes
                continue
            if child.type.get_canonical().kind.name != "VECTOR" and (whole or (before in "(;" and after == ")" and child.kind.is_expression())):
                for value in ("true", "false"):
                    self.add("condition", f"condition -> {value}", function, child,
                             wrap=f"(dat_mutant(#) ? {value} : static_cast<bool>(@))")

    def visit(self, cursor, function, parent, statement):
        """function: the named one around the cursor; parent: the kind around it; statement: whether its value is dropped."""
        try:
            kind = cursor.kind.name
        except ValueError:  # one that the bindings do not know: a concept
            return
        called, children = cursor.spelling or "", list(cursor.get_children())
        if kind.startswith("UNEXPOSED"):  # a conversion, or what a loop of OpenMP is wrapped in
            for child in children:
                self.visit(child, function, parent, statement)
            return
        named = children[0] if kind == "DECL_STMT" and children else cursor  # the first of several variables
        if kind in FIXED or kind == "CXX_UNARY_EXPR" or (
                kind in ("VAR_DECL", "DECL_STMT") and "constexpr" in self.part(cursor.extent.start.offset, named.location.offset)):
            return
        if kind in FUNCTIONS:
            of = cursor.semantic_parent
            function = (f"{of.spelling}::" if of and of.kind.name in CLASSES else "") + called if cursor.is_definition() else ""
            self.refers, self.frees = "&" in cursor.result_type.spelling, kind == "DESTRUCTOR"
        if kind in ("BINARY_OPERATOR", "COMPOUND_ASSIGNMENT_OPERATOR") and len(children) == 2:
            self.operator(cursor, function, parent, statement)
        elif kind in LITERALS:
            self.literal(cursor, function, parent)
        elif kind == "RETURN_STMT" and children:
            self.result(children[0], function)
        elif kind in ("IF_STMT", "CONDITIONAL_OPERATOR"):
            self.condition(cursor, children, function)
        if kind == "CALL_EXPR" and (PRINTS.fullmatch(called) or HINTS.fullmatch(called)):
            return
        if statement and kind in ("CALL_EXPR", "COMPOUND_ASSIGNMENT_OPERATOR", "BINARY_OPERATOR", "UNARY_OPERATOR"):
            self.statement(cursor, function)
        if kind == "CALL_EXPR" and called.startswith("require"):
            children = children[:2]  # the callee and the condition: the others are a message
        elif kind == "CASE_STMT" or (kind == "IF_STMT" and self.computed(cursor, children)):
            children = children[1:]
        elif kind == "FOR_STMT" and parent.startswith("OMP"):
            children = children[-1:]
        outside, self.larger = self.larger, self.larger or (kind == "CALL_EXPR" and bool(ALLOCATES.fullmatch(called)))
        for child in children:
            at = child.extent.start.offset
            self.visit(child, function, kind, kind in ("COMPOUND_STMT", "CASE_STMT", "DEFAULT_STMT") or (
                kind in ("IF_STMT", "FOR_STMT", "WHILE_STMT", "CXX_FOR_RANGE_STMT") and at > children[0].extent.start.offset and
                self.beside(at, at)[0] in (")", "e")))  # after the parenthesis, or after else
        self.larger = outside


def of_unit(path, command, tree, files):
    """What clang finds in one translation unit, by file."""
    import clang.cindex as clang

    words, arguments = shlex.split(command)[1:-1], ["-mavx2", "-mfma", "-w"]
    for k, word in enumerate(words):
        if word.startswith(("-I", "-D", "-std", "-mavx512", "-fopenmp")):
            arguments.append(word)
        elif word in ("-isystem", "-include"):
            arguments += words[k:k + 2]
    return Walk(tree, files).unit(clang.Index.create().parse(path, arguments).cursor)


def candidates(commands, tree, files, only):
    """By file, in the order of the text, every fault that can be put there."""
    if not importlib.util.find_spec("clang"):
        raise SystemExit("mutate.py: clang's bindings for Python are missing: apt-get install python3-clang-16, and use /usr/bin/python3")
    units = [(entry["file"], entry["command"], tree, files) for entry in json.load(open(commands))
             if not entry["file"].endswith(".cu") and entry["file"].startswith((f"{tree}/src/", f"{tree}/kernels/")) or re.search(r"/dat_\w+\.dir/Unity/", entry["file"])]
    found = {}
    with multiprocessing.Pool() as pool:
        for there in pool.starmap(of_unit, units, chunksize=1):
            found = there | found
    counts = collections.Counter()
    for name in sorted(found):
        found[name].sort(key=lambda m: (m["begin"], m["end"], m["kind"]))
        for mutant in found[name]:
            what = (name, mutant["function"], mutant["kind"])
            counts[what] += 1
            line = files[name].count(b"\n", 0, mutant.get("at", mutant["begin"])) + 1
            mutant["name"] = f"{name} {mutant['function']}: {mutant['kind']} ({counts[what]})"
            mutant["text"] = f"{line}: " + " ".join(files[name][mutant["begin"]:mutant["end"]].decode(errors="replace").split())[:150]
    found = {name: [m for m in there if not only or re.search(only, m["name"])] for name, there in found.items()}
    return {name: there for name, there in found.items() if there}


def lottery(found, files, seed):
    """Mutants in the order in which they are drawn: a file by the square root of its size, of its groups one, of that one."""
    chance = random.Random(seed)
    left = {name: collections.defaultdict(list) for name in sorted(found)}
    for name, there in sorted(found.items()):
        for mutant in there:
            left[name][mutant["group"]].append(mutant)
    while left:
        names = list(left)
        name = chance.choices(names, [math.sqrt(len(files[name])) for name in names])[0]
        kind = chance.choice(sorted(left[name]))
        yield left[name][kind].pop(chance.randrange(len(left[name][kind])))
        if not left[name][kind]:
            del left[name][kind]
        if not left[name]:
            del left[name]


def by_hand(files):
    """The mutants of by_hand.txt: quotes that are found once in their file."""
    found, misfits = [], []
    for line in open(f"{os.path.dirname(os.path.abspath(__file__))}/by_hand.txt"):
        if line.startswith("#"):
            continue
        name, quote, other, what = re.fullmatch(r"(\S+)  (.+?)  =>  (.*?)  // (.+)\n", line).groups()
        count = files.get(name, b"").count(quote.encode())
        if count != 1:
            misfits.append(f"by_hand.txt: '{what}' fits {name} {count} times, not once: {quote}")
            continue
        begin = files[name].index(quote.encode())
        wrap = f"if (dat_mutant(#)) {{ {other} }} else {{ @ }}" if quote.endswith(";") else f"(dat_mutant(#) ? ({other}) : (@))"
        found.append({"file": name, "begin": begin, "end": begin + len(quote.encode()), "wrap": wrap, "name": f"{name}: {what}",
                      "by_hand": True, "text": f"{quote}  =>  {other}"})
    if misfits:
        raise SystemExit("\n".join(misfits))
    return found


def instrumented(text, numbered, header):
    """A file's text with its mutants in it. numbered: pairs of a number and a mutant."""
    ordered = sorted(numbered, key=lambda pair: (pair[1]["begin"], -pair[1]["end"], "at" in pair[1], pair[0]))

    def within(begin, end, there):
        out = b""
        while there:
            first, last = there[0][1]["begin"], there[0][1]["end"]
            inner = [pair for pair in there[1:] if pair[1]["end"] <= last]
            out += text[begin:first] + one(*there[0], inner)
            there, begin = there[1 + len(inner):], last
        return out + text[begin:end]

    def one(number, mutant, inner):
        begin, end = mutant["begin"], mutant["end"]
        if "at" not in mutant:
            return mutant["wrap"].replace("#", str(number)).encode().replace(b"@", within(begin, end, inner))
        left = within(begin, mutant["at"], [pair for pair in inner if pair[1]["end"] <= mutant["at"]])
        right = within(mutant["to"], end, [pair for pair in inner if pair[1]["begin"] >= mutant["to"]])
        both = [b"static_cast<void>"[:17 * mutant["void"]] + b"(" + left + sign + right + b")"
                for sign in (mutant["other"].encode(), text[mutant["at"]:mutant["to"]])]
        return b"(dat_mutant(%d) ? %s : %s)" % (number, *both)

    begin = text.index(b"\n") + 1 if text.startswith(b"#pragma once") else 0
    return text[:begin] + f'#include "{header}"\n'.encode() + within(begin, len(text), ordered)
