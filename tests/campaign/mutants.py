"""Where faults can be put into the program, and the text of a program that has them all: each is behind dat_mutant(N).

Faults are looked for in functions of src, include and kernels as clang reads them. Left out are, by rule:
- what a build without nvcc does not compile (kernels on a GPU), and what only an instruction set that this processor lacks runs;
- what the compiler computes: constexpr variables, template arguments, sizes of arrays, labels of cases;
- text for people: arguments of messages, log lines and thrown errors, and the calls that print them;
- hints that change no result (HINTS), and the headers of loops that OpenMP reads;
- FOLDERS whose results are looked at, not tested.
"""

import collections
import json
import math
import multiprocessing
import os
import random
import re
import shlex

PRINTS = re.compile(r"fail(_with|ure)?|say(_\w+)?|warn(ing)?|print(_\w+)?|info|note|format(_to)?|[fs]?printf|fputs|quoted(_\w+)?")
HINTS = re.compile(r"reserve|shrink_to_fit|madvise|posix_\w+|setvbuf|\w*prefetch\w*|yield|sleep_for|omp_set_\w+")
FOLDERS = {
    "src/record/pictures/": "how a drawing looks",
    "src/measure/": "how long something takes",
}
INSTRUCTIONS = {"winograd_avx2": "avx2", "winograd_avx512": "avx512f", "amx_convolution": "amx_bf16"}

OPERATORS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "*": "/", "/": "*", "%": "/",
             "&&": "||", "||": "&&", "&": "|", "|": "&", "<<": ">>", ">>": "<<", "+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=",
             "|=": "&=", "&=": "|="}
FUNCTIONS = {"FUNCTION_DECL", "CXX_METHOD", "CONSTRUCTOR", "DESTRUCTOR", "FUNCTION_TEMPLATE", "CONVERSION_FUNCTION"}
FIXED = {"STATIC_ASSERT", "ENUM_CONSTANT_DECL", "FIELD_DECL", "PARM_DECL", "CXX_THROW_EXPR", "TEMPLATE_TYPE_PARAMETER",
         "TEMPLATE_NON_TYPE_PARAMETER", "TYPE_REF", "TEMPLATE_REF", "DECL_REF_EXPR", "TYPE_ALIAS_DECL"}
INTEGER = re.compile(r"(?i)(0x[0-9a-f']+|0|[1-9][0-9']*)(u?l{0,2}|u?z)")

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
}
"""


class File:
    """Candidates of one file, as clang's cursors are walked."""

    def __init__(self, name, text):
        self.name, self.text, self.found = name, text, []

    def part(self, begin, end):
        return self.text[begin:end].decode(errors="replace")

    def beside(self, begin, end):
        """The characters before and after an expression."""
        return self.text[:begin].rstrip()[-1:].decode(), self.text[end:end + 200].lstrip()[:1].decode()

    def add(self, group, kind, function, begin, end, **more):
        """more: wrap, with # for the number and @ for the text; or the operator's place and the other one."""
        if function and begin < end:
            self.found.append({"file": self.name, "function": function, "group": group, "kind": kind, "begin": begin, "end": end} | more)

    # What follows looks at one cursor each.

    def operator(self, cursor, function, begin, end, parent, statement):
        left, right = list(cursor.get_children())[:2]
        at, to = left.extent.end.offset, right.extent.start.offset
        sign = self.part(at, to).strip()
        if sign not in OPERATORS or not at < to:
            return
        if cursor.type.get_canonical().kind.name in ("POINTER", "RECORD") or (sign in "+-*/%" and left.type.get_canonical().kind.name == "POINTER"):
            return
        at += self.part(at, to).index(sign)
        # One turn too many would be memory behind an array, which need not be seen; one too few is defined.
        other = "< -1 +" if parent == "FOR_STMT" and sign == "<" else OPERATORS[sign]
        self.add("operator", f"{sign} -> {other}", function, begin, end, at=at, to=at + len(sign), other=other, void=statement)

    def literal(self, cursor, function, begin, end, parent):
        text = self.part(begin, end)
        before, after = self.beside(begin, end)
        if before == "[" and parent == "VAR_DECL" or (parent not in ("BINARY_OPERATOR", "UNARY_OPERATOR") and (before == "<" or after == ">")):
            return
        number = INTEGER.fullmatch(text)
        if text in ("true", "false"):
            other = "false" if text == "true" else "true"
        elif number:
            other = str(int(number[1].replace("'", ""), 0) + 1) + number[2]
        elif re.fullmatch(r"[0-9.']+(e[-+]?[0-9]+)?[fF]?", text):
            value = float(text.rstrip("fF").replace("'", ""))
            other = repr(value + 1 if abs(value) < 1e6 else 2 * value) + ("F" if text[-1] in "fF" else "")
        else:
            return
        self.add("constant", f"{text} -> {other}", function, begin, end, wrap=f"(dat_mutant(#) ? {other} : @)")

    def condition(self, condition, function, begin, end):
        for value in ("true", "false"):
            self.add("condition", f"condition -> {value}", function, begin, end, wrap=f"(dat_mutant(#) ? {value} : static_cast<bool>(@))")

    def statement(self, cursor, function, begin, end):
        after = self.beside(begin, end)[1]
        name = self.part(begin, end).split("(")[0]
        called = re.split(r"\W+", name)[-1] if "(" in self.part(begin, end) else ""
        if after == ";" and not HINTS.fullmatch(called):
            self.add("statement", "dropped", function, begin, end, wrap="(dat_mutant(#) ? static_cast<void>(0) : static_cast<void>(@))")

    def result(self, value, function, begin, end):
        kind = value.type.get_canonical().kind.name
        if kind == "BOOL":
            self.add("result", "result negated", function, begin, end, wrap="(dat_mutant(#) ? !(@) : (@))")
        elif kind in ("INT", "LONG", "UINT", "ULONG", "FLOAT", "DOUBLE", "USHORT", "UCHAR", "LONGLONG", "ULONGLONG"):
            self.add("result", "result + 1", function, begin, end, wrap="(dat_mutant(#) ? (@) + 1 : (@))")


class Walk:
    """One translation unit."""

    def __init__(self, tree, files):
        self.tree, self.files, self.here = tree + "/", files, {}

    def file_of(self, cursor):
        name = os.path.normpath(cursor.location.file.name) if cursor.location.file else ""
        if not name.startswith(self.tree):
            return None
        name = name[len(self.tree):]
        if not name.startswith(("src/", "include/", "kernels/")) or name not in self.files or left_out(name):
            return None
        return self.here.setdefault(name, File(name, self.files[name]))

    def unit(self, root):
        for cursor in root.get_children():
            file = self.file_of(cursor)
            if file:
                self.visit(file, cursor, "", "", False)
        return self.here

    def visit(self, file, cursor, function, parent, statement):
        """function: the named one around the cursor; parent: the kind around it; statement: whether its value is dropped."""
        kind, begin, end = cursor.kind.name, cursor.extent.start.offset, cursor.extent.end.offset
        if kind in FIXED:
            return
        if kind.startswith("UNEXPOSED"):  # a conversion, or what a loop of OpenMP is wrapped in
            for child in cursor.get_children():
                self.visit(file, child, function, parent, statement)
            return
        if kind in FUNCTIONS:
            if cursor.semantic_parent and cursor.semantic_parent.kind.name in ("CLASS_DECL", "STRUCT_DECL", "CLASS_TEMPLATE"):
                function = f"{cursor.semantic_parent.spelling}::{cursor.spelling}"
            else:
                function = cursor.spelling
            function = function if cursor.is_definition() else ""
        if kind == "VAR_DECL" and "constexpr" in file.part(begin, cursor.location.offset):
            return
        children = list(cursor.get_children())
        if kind in ("BINARY_OPERATOR", "COMPOUND_ASSIGNMENT_OPERATOR") and len(children) == 2:
            file.operator(cursor, function, begin, end, parent, statement)
        elif kind in ("INTEGER_LITERAL", "FLOATING_LITERAL", "CXX_BOOL_LITERAL_EXPR"):
            file.literal(cursor, function, begin, end, parent)
        elif kind == "RETURN_STMT" and children:
            file.result(children[0], function, children[0].extent.start.offset, children[0].extent.end.offset)
        elif kind in ("IF_STMT", "CONDITIONAL_OPERATOR"):
            self.look_at_condition(file, cursor, children, function)
        if kind == "CALL_EXPR" and PRINTS.fullmatch(cursor.spelling or ""):
            return
        if statement and kind in ("CALL_EXPR", "COMPOUND_ASSIGNMENT_OPERATOR", "BINARY_OPERATOR", "UNARY_OPERATOR"):
            file.statement(cursor, function, begin, end)
        if kind == "CALL_EXPR" and (cursor.spelling or "").startswith("require"):
            children = children[:2]  # the callee and the condition: the others are a message
        elif kind == "CASE_STMT":
            children = children[1:]
        elif kind == "FOR_STMT" and parent.startswith("OMP"):
            children = children[-1:]
        for child in children:
            self.visit(file, child, function, kind, is_statement(file, kind, child, children[0]))

    def look_at_condition(self, file, cursor, children, function):
        if "constexpr" in file.part(cursor.extent.start.offset, children[0].extent.start.offset):
            return
        for child in children[:2] if cursor.kind.name == "IF_STMT" else children[:1]:
            begin, end = child.extent.start.offset, child.extent.end.offset
            before, after = file.beside(begin, end)
            if cursor.kind.name != "IF_STMT" or (before in "(;" and after == ")" and child.kind.is_expression()):
                file.condition(child, function, begin, end)


def is_statement(file, kind, child, first):
    """Whether the value of an expression of this parent is dropped."""
    if kind in ("COMPOUND_STMT", "CASE_STMT", "DEFAULT_STMT"):
        return True
    at = child.extent.start.offset
    return kind in ("IF_STMT", "FOR_STMT", "WHILE_STMT", "CXX_FOR_RANGE_STMT") and at > first.extent.start.offset and \
        file.beside(at, 0)[0] in (")", "e")


def left_out(name):
    if name.startswith(tuple(FOLDERS)):
        return True
    stem = os.path.basename(name).split(".")[0]
    return stem in INSTRUCTIONS and not re.search(rf"\b{INSTRUCTIONS[stem]}\b", open("/proc/cpuinfo").read())


def arguments_of(command):
    """Arguments of the compiler that say what a source means."""
    words, kept = shlex.split(command)[1:-1], ["-mavx2", "-mfma", "-w"]
    for k, word in enumerate(words):
        if word in ("-isystem", "-include"):
            kept += words[k:k + 2]
        elif word.startswith(("-I", "-D", "-std", "-mavx512", "-fopenmp")):
            kept.append(word)
    return kept


def of_unit(path, arguments, tree, files):
    """What clang finds in one translation unit, by file."""
    try:
        import clang.cindex as clang
    except ImportError:
        raise SystemExit("mutate.py: clang's bindings for Python are missing: apt-get install python3-clang-16, and use /usr/bin/python3")
    unit = clang.Index.create().parse(path, arguments)
    return {name: file.found for name, file in Walk(tree, files).unit(unit.cursor).items()}


def candidates(commands, tree, files, only):
    """By file, in the order of the text, every fault that can be put there."""
    units = [(entry["file"], arguments_of(entry["command"]), tree, files) for entry in json.load(open(commands))
             if entry["file"].startswith((f"{tree}/src/", f"{tree}/kernels/")) or re.search(r"/dat_\w+\.dir/Unity/", entry["file"])]
    found = {}
    with multiprocessing.Pool() as pool:
        for there in pool.starmap(of_unit, units, chunksize=1):
            for name, mutants in there.items():
                found.setdefault(name, mutants)
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
    found, name = [], ""
    for line in open(f"{os.path.dirname(os.path.abspath(__file__))}/by_hand.txt"):
        line = line.rstrip("\n")
        if not line or line.startswith("#"):
            continue
        if "  =>  " not in line:
            name = line
            continue
        quote, other, what = re.fullmatch(r"\s*(.+?)  =>  (.*?)  // (.+)", line).groups()
        count = files.get(name, b"").count(quote.encode())
        if count != 1:
            raise SystemExit(f"by_hand.txt: '{what}' fits {name} {count} times, not once: {quote}")
        begin = files[name].index(quote.encode())
        end = begin + len(quote.encode())
        wrap = f"if (dat_mutant(#)) {{ {other} }} else {{ @ }}" if quote.endswith(";") else f"(dat_mutant(#) ? ({other}) : (@))"
        found.append({"file": name, "begin": begin, "end": end, "wrap": wrap, "name": f"{name}: {what}", "by_hand": True,
                      "text": f"{quote}  =>  {other}"})
    return found


def instrumented(text, numbered, header):
    """A file's text with its mutants in it. numbered: pairs of a number and a mutant."""
    text = text.decode()
    offsets = Offsets(text)
    ordered = sorted(numbered, key=lambda pair: (pair[1]["begin"], -pair[1]["end"], "at" in pair[1], pair[0]))

    def within(begin, end, there):
        out, position = "", begin
        while there:
            number, mutant = there[0]
            first, last = offsets[mutant["begin"]], offsets[mutant["end"]]
            inner = [pair for pair in there[1:] if pair[1]["end"] <= mutant["end"]]
            there = there[1 + len(inner):]
            out += text[position:first] + one(number, mutant, first, last, inner)
            position = last
        return out + text[position:end]

    def one(number, mutant, first, last, inner):
        if "at" not in mutant:
            return mutant["wrap"].replace("#", str(number)).replace("@", within(first, last, inner))
        at, to = offsets[mutant["at"]], offsets[mutant["to"]]
        left = within(first, at, [pair for pair in inner if pair[1]["end"] <= mutant["at"]])
        right = within(to, last, [pair for pair in inner if pair[1]["begin"] >= mutant["to"]])
        void = "static_cast<void>" if mutant["void"] else ""
        return f"(dat_mutant({number}) ? {void}({left}{mutant['other']}{right}) : {void}({left}{text[at:to]}{right}))"

    begin = text.index("\n") + 1 if text.startswith("#pragma once") else 0
    return f'{text[:begin]}#include "{header}"\n{within(begin, len(text), ordered)}'.encode()


class Offsets:
    """Places of bytes as places of characters."""

    def __init__(self, text):
        self.bytes = None if text.isascii() else text.encode()

    def __getitem__(self, offset):
        return offset if self.bytes is None else len(self.bytes[:offset].decode())
