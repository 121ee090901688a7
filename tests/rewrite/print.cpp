/* SPDX-License-Identifier: MIT */
#include "tree.h"

namespace fuzz
{
namespace
{

/* The types and functions that programs use, in one line, as MPICH declares them. */
const char *const header =
    "typedef unsigned long size_t; void *malloc(size_t); void *calloc(size_t, size_t); "
    "void exit(int) __attribute__((noreturn)); void abort(void) __attribute__((noreturn)); "
    "int atoi(const char *); typedef int MPI_Comm, MPI_Datatype, MPI_Op; "
    "typedef struct { int n; } MPI_Status; int MPI_Init(int *, char ***); int MPI_Finalize(void); "
    "int MPI_Barrier(MPI_Comm); int MPI_Bcast(void *, int, MPI_Datatype, int, MPI_Comm); "
    "int MPI_Allreduce(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm); "
    "int MPI_Comm_rank(MPI_Comm, int *); int MPI_Comm_size(MPI_Comm, int *); "
    "int MPI_Comm_split(MPI_Comm, int, int, MPI_Comm *); int MPI_Comm_dup(MPI_Comm, MPI_Comm *); "
    "int MPI_Abort(MPI_Comm, int); int MPI_Send(const void *, int, MPI_Datatype, int, int, "
    "MPI_Comm); "
    "int MPI_Recv(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status *);\n"
    "#define MPI_COMM_WORLD ((MPI_Comm)0x44000000)\n"
    "#define MPI_COMM_SELF ((MPI_Comm)0x44000001)\n"
    "#define MPI_INT ((MPI_Datatype)0x4c000405)\n"
    "#define MPI_SUM ((MPI_Op)0x58000003)\n"
    "#define MPI_STATUS_IGNORE ((MPI_Status *)1)\n"
    "static const int fixed[4] = {3, 1, 4, 1};\n"
    "static void set(int *to, int value) { *to = value; }\n";

class printer
{
  public:
    explicit printer(program &of) : of(of)
    {
    }

    std::string run();

  private:
    void put(const std::string &part)
    {
        for (char c : part) {
            line += c == '\n';
        }
        text += part;
    }

    /* The expression, for a line that is put next. */
    std::string text_of(node &n)
    {
        std::string before = std::move(text);
        int at = line;
        text.clear();
        expression(n);
        std::swap(before, text);
        line = at;
        return before;
    }

    std::string name(int variable) const
    {
        return of.variables[variable].name;
    }

    void binary(const node &n, const char *operation);
    void call(node &n);
    void expression(node &n);
    void pointer(node &n);
    void communicator(const node &n);
    void block(node &n);
    void cases(node &n);
    void loop(node &n);
    void statement(node &n);
    void message(node &n);
    void exit(node &n);
    void mpi(node &n);
    void declare(const variable &v);
    void head(const function &f);

    program &of;
    std::string text;
    int line = 1;
    size_t current = 0; /* the function */
};

void printer::binary(const node &n, const char *operation)
{
    put("(");
    expression(const_cast<node &>(n.parts[0]));
    put(operation);
    expression(const_cast<node &>(n.parts[1]));
    put(")");
}

/* Each call begins a line, which names its site. */
void printer::call(node &n)
{
    put("\n");
    n.b = line;
    if (n.what == kind::MALLOC) {
        put(n.a ? "calloc(2, (size_t)" : "malloc((size_t)");
    } else {
        put(of.functions[n.a].name + "(");
    }
    for (size_t i = 0; i < n.parts.size(); i++) {
        put(i ? ", " : "");
        expression(n.parts[i]);
    }
    put(")");
}

void printer::communicator(const node &n)
{
    put(n.a == WORLD ? "MPI_COMM_WORLD" : n.a == SELF ? "MPI_COMM_SELF" : name(n.a));
}

void printer::expression(node &n)
{
    static const char *const operators[] = {" + ", " - ", " * ", " < ",  " == ", " & ",
                                            " % ", " > ", " / ", " != ", " | "};
    static const char *const before_test[] = {"(", "(", "!!", "", "(0 == ", "!"},
                             *const after_test[] = {" != 0)", " ? 1 : 0)", "", "", ")", ""};
    auto wrap = [&](const std::string &before, int part, const std::string &after) {
        put(before);
        expression(n.parts[part]);
        put(after);
    };
    switch (n.what) {
    case kind::NUMBER:
        return put(std::to_string(n.a));
    case kind::VARIABLE:
        return put(name(n.a));
    case kind::POINTED:
        return put("*p_" + name(n.a));
    case kind::ELEMENT:
        return wrap(name(n.a) + "[", 0, " & 3]");
    case kind::CONSTANT:
        return wrap("fixed[", 0, " & 3]");
    case kind::BINARY:
        return binary(n, operators[n.a]);
    case kind::NOT:
        return wrap("!", 0, "");
    case kind::AND:
        return binary(n, " && ");
    case kind::OR:
        return binary(n, " || ");
    case kind::COMMA:
        return binary(n, ", ");
    case kind::CONDITIONAL:
        wrap("(", 0, " ? ");
        expression(n.parts[1]);
        return wrap(" : ", 2, ")");
    case kind::ASSIGN:
        return wrap("(" + name(n.a) + " = ", 0, ")");
    case kind::ASSIGN_POINTED:
        return wrap("(*p_" + name(n.a) + " = ", 0, ")");
    case kind::ASSIGN_ELEMENT:
        wrap("(" + name(n.a) + "[", 0, " & 3] = ");
        return wrap("", 1, ")");
    case kind::ASSIGN_SET:
        return wrap("(set(&" + name(n.a) + ", ", 0, "), " + name(n.a) + ")");
    case kind::ADD:
        return wrap("(" + name(n.a) + " += ", 0, ")");
    case kind::INCREMENT:
        return put(name(n.a) + "++");
    case kind::ATOI:
        return put(!of.is_cuda ? "atoi(argv[1])" : n.a ? "(int)blockIdx.x" : "arg");
    case kind::MALLOC:
        put("(");
        call(n);
        return put(" != 0)");
    case kind::COMMUNICATOR:
        return communicator(n);
    case kind::TEST:
        put(before_test[n.a]);
        pointer(n.parts[0]);
        return put(after_test[n.a]);
    default:
        if (!of.functions[n.a].returns_pointer) {
            return call(n);
        }
        put("(");
        call(n);
        return put(" != 0)");
    }
}

void printer::pointer(node &n)
{
    switch (n.what) {
    case kind::NOTHING:
        return put("(void *)0");
    case kind::POINTER:
        return put(name(n.a));
    case kind::MALLOC:
        return call(n);
    case kind::ASSIGN_TO:
        put("(" + name(n.a) + " = ");
        pointer(n.parts[0]);
        return put(")");
    case kind::EITHER:
        put("(");
        expression(n.parts[0]);
        put(" ? ");
        pointer(n.parts[1]);
        put(" : ");
        pointer(n.parts[2]);
        return put(")");
    default:
        if (n.what == kind::CALL && of.functions[n.a].returns_pointer) {
            return call(n);
        }
        put("(void *)(long)("); /* of a reduced program */
        expression(n);
        put(")");
    }
}

void printer::block(node &n)
{
    put("{\n");
    for (node &part : n.parts) {
        statement(part);
    }
    put("}\n");
}

void printer::cases(node &n)
{
    put("switch (");
    expression(n.parts[0]);
    put(") {\n");
    for (size_t i = 1; i < n.parts.size(); i++) {
        node &one = n.parts[i];
        put(one.a < 0 ? "default: " : "case " + std::to_string(one.a) + ": ");
        block(one);
        put(one.b ? "" : "break;\n");
    }
    put("}\n");
}

void printer::loop(node &n)
{
    if (n.what == kind::DO) {
        put("do ");
        block(n.parts[0]);
        put("while (");
        expression(n.parts[1]);
        return put(");\n");
    }
    if (n.what == kind::WHILE) {
        put("while (");
        expression(n.parts[0]);
    } else {
        put("for (" + name(n.a) + " = ");
        expression(n.parts[0]);
        put("; " + name(n.a) + " < ");
        expression(n.parts[1]);
        put("; " + name(n.a) + "++");
    }
    put(") ");
    block(n.parts.back());
}

void printer::message(node &n)
{
    if (of.is_cuda) {
        return put(in_cuda(n, name(n.a), name(n.a), text_of(n.parts[0])));
    }
    put((n.what == kind::SEND ? "MPI_Send(&" : "MPI_Recv(&") + name(n.a) + ", 1, MPI_INT, ");
    expression(n.parts[0]);
    put(n.what == kind::SEND ? ", 0, MPI_COMM_WORLD);\n"
                             : ", 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);\n");
}

void printer::exit(node &n)
{
    if (of.is_cuda) {
        return put("__trap();\n");
    }
    if (n.a == EXIT_VARIABLE) {
        return put("exit(" + name(n.b) + ");\n");
    }
    put(n.a == EXIT_MPI   ? "MPI_Abort(MPI_COMM_WORLD, 1);\n"
        : n.a == EXIT_ONE ? "exit(1);\n"
                          : "exit(0);\n");
}

void printer::mpi(node &n)
{
    if (of.is_cuda) {
        bool has_root = n.what == kind::BROADCAST;
        return put(in_cuda(n, name(n.what == kind::REDUCE ? n.b : n.a), name(n.a),
                           has_root ? text_of(n.parts[1]) : std::string()));
    }
    switch (n.what) {
    case kind::BARRIER:
        put("MPI_Barrier(");
        break;
    case kind::BROADCAST:
        put("MPI_Bcast(&" + name(n.a) + ", 1, MPI_INT, ");
        expression(n.parts[1]);
        put(", ");
        break;
    case kind::REDUCE:
        put("MPI_Allreduce(&" + name(n.a) + ", &" + name(n.b) + ", 1, MPI_INT, MPI_SUM, ");
        break;
    case kind::BECOME:
        put(name(n.a) + " = (");
        break;
    default:
        put(n.what == kind::RANK    ? "MPI_Comm_rank("
            : n.what == kind::SIZE  ? "MPI_Comm_size("
            : n.what == kind::SPLIT ? "MPI_Comm_split("
                                    : "MPI_Comm_dup(");
    }
    communicator(n.parts[0]);
    if (n.what == kind::SPLIT) {
        put(", ");
        expression(n.parts[1]);
        put(", 0");
    }
    bool sets = n.what == kind::RANK || n.what == kind::SIZE || n.what == kind::SPLIT ||
                n.what == kind::DUPLICATE;
    put((sets ? ", &" + name(n.a) : "") + ");\n");
}

void printer::statement(node &n)
{
    switch (n.what) {
    case kind::EXPRESSION:
    case kind::RETURN:
        if (n.what == kind::RETURN && of.is_cuda && current == 0) {
            put("{ ");
            expression(n.parts[0]);
            return put("; return; }\n");
        }
        put(n.what == kind::RETURN ? "return " : "");
        if (n.what == kind::RETURN ? of.functions[current].returns_pointer
                                   : n.parts[0].what == kind::ASSIGN_TO) {
            pointer(n.parts[0]);
        } else {
            expression(n.parts[0]);
        }
        return put(";\n");
    case kind::BLOCK:
        return block(n);
    case kind::IF:
        put("if (");
        expression(n.parts[0]);
        put(") ");
        block(n.parts[1]);
        if (n.parts.size() > 2) {
            put("else ");
            block(n.parts[2]);
        }
        return;
    case kind::WHILE:
    case kind::DO:
    case kind::FOR:
        return loop(n);
    case kind::SWITCH:
        return cases(n);
    case kind::GOTO:
        return put("goto L" + std::to_string(n.a) + ";\n");
    case kind::LABEL:
        return put("L" + std::to_string(n.a) + ":;\n");
    case kind::BREAK:
        return put("break;\n");
    case kind::CONTINUE:
        return put("continue;\n");
    case kind::EXIT:
        return exit(n);
    case kind::FINALIZE:
        return put("MPI_Finalize();\n");
    case kind::ABORT:
        return put(of.is_cuda ? "__trap();\n" : "abort();\n");
    case kind::SEND:
    case kind::RECEIVE:
        return message(n);
    default:
        return mpi(n);
    }
}

void printer::declare(const variable &v)
{
    std::string initial = std::to_string(v.initial);
    put(of.is_cuda && v.function == GLOBAL ? "__device__ " : "");
    put(v.is_static ? "static " : "");
    if (v.is_pointer) {
        put("void *" + v.name + " = 0;\n");
    } else if (v.is_communicator) {
        put("MPI_Comm " + v.name + " = MPI_COMM_WORLD;\n");
    } else {
        put("int " + v.name +
            (v.is_array ? "[4] = {" + initial + "};\n" : " = " + initial + ";\n"));
    }
    if (v.has_pointer) {
        put(of.is_cuda && v.function == GLOBAL ? "__device__ " : "");
        put((v.is_static ? "static int *p_" : "int *p_") + v.name + " = &" + v.name + ";\n");
    }
}

void printer::head(const function &f)
{
    if (f.name == "main") {
        return put(of.is_cuda ? "__global__ void kernel(int argc, int arg)"
                              : "int main(int argc, char **argv)");
    }
    put(of.is_cuda ? "__device__ " : "");
    put((f.returns_pointer ? "void *" : "int ") + f.name + "(");
    for (size_t i = 0; i < f.parameters.size(); i++) {
        const variable &v = of.variables[f.parameters[i]];
        put((i ? ", " : "") + std::string(v.is_communicator ? "MPI_Comm " : "int ") + v.name);
    }
    put(")");
}

std::string printer::run()
{
    put(of.is_cuda ? cuda_header : header);
    for (const variable &v : of.variables) {
        if (v.function == GLOBAL) {
            declare(v);
        }
    }
    for (const function &f : of.functions) {
        head(f);
        put(";\n");
    }
    for (size_t i = 0; i < of.functions.size(); i++) {
        current = i;
        head(of.functions[i]);
        put("{\n");
        for (const variable &v : of.variables) {
            if (v.function == (int)i && !v.is_parameter) {
                declare(v);
            }
        }
        put(i || of.is_cuda ? "" : "MPI_Init(&argc, &argv);\n");
        block(of.functions[i].body);
        put(i || !of.is_cuda ? "return 0;\n}\n" : "}\n");
    }
    return text;
}

} // namespace

std::string print(program &of)
{
    return printer(of).run();
}

} // namespace fuzz
