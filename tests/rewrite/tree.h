/* SPDX-License-Identifier: MIT
 *
 * The programs that the fuzzer makes: a small part of C, as trees of one type of node, so that a
 * program can be generated, printed, executed and reduced by short functions.
 */
#ifndef GPUALLOC_TESTS_REWRITE_TREE_H
#define GPUALLOC_TESTS_REWRITE_TREE_H

#include <string>
#include <utility>
#include <vector>

namespace fuzz
{

/* `a`, `b`, and the parts of each node. A variable or function is named by its index. */
enum class kind : unsigned char {
    /* expressions */
    NUMBER,   /* a */
    VARIABLE, /* variable a */
    POINTED,  /* *p, where p points to variable a */
    ELEMENT,  /* array a [part] */
    CONSTANT, /* a constant array [part] */
    BINARY,   /* operator a, two parts */
    NOT,
    AND,
    OR,
    CONDITIONAL, /* three parts */
    COMMA,
    ASSIGN,         /* variable a = part */
    ASSIGN_POINTED, /* *p = part */
    ASSIGN_ELEMENT, /* array a [part] = part */
    ASSIGN_SET,     /* set(&a, part), a function of the program */
    ADD,            /* variable a += part */
    INCREMENT,      /* variable a ++ */
    ATOI,           /* atoi(argv[1]) */
    CALL,           /* function a with parts; b: line, set by the printer */
    MALLOC,         /* malloc(part) or calloc(2, part), by a; b: line */
    TEST,           /* a pointer, the part, is not NULL, or is NULL; by a, of tests */
    /* pointers; MALLOC and a CALL of a function that returns one are others */
    NOTHING,      /* NULL */
    POINTER,      /* variable a */
    ASSIGN_TO,    /* variable a = part */
    EITHER,       /* a condition and two pointers */
    COMMUNICATOR, /* WORLD, SELF, or variable a */
    /* statements */
    EXPRESSION,
    BLOCK,
    IF, /* two or three parts */
    WHILE,
    DO,     /* body, condition */
    FOR,    /* variable a = part; a < part; a++, body */
    SWITCH, /* part, and cases */
    CASE,   /* a, or default if it is negative; falls through if b */
    BREAK,
    CONTINUE,
    GOTO,  /* label a */
    LABEL, /* a */
    RETURN,
    EXIT, /* one of exits, by a; with the status of variable b */
    ABORT,
    FINALIZE,  /* MPI_Finalize(); the part is WORLD */
    BARRIER,   /* communicator */
    BROADCAST, /* variable a, root, communicator */
    REDUCE,    /* MPI_Allreduce() of variable a to variable b, communicator */
    RANK,      /* MPI_Comm_rank() to variable a, communicator */
    SIZE,      /* MPI_Comm_size() to variable a, communicator */
    SPLIT,     /* to communicator variable a, of the communicator, by color */
    DUPLICATE, /* to communicator variable a, of the communicator */
    BECOME,    /* communicator variable a = the communicator */
    SEND,      /* variable a, to rank */
    RECEIVE    /* variable a, from rank */
};

constexpr int WORLD = -1, SELF = -2;
enum tests {
    TEST_UNEQUAL, /* p != 0 */
    TEST_CHOICE,  /* p ? 1 : 0 */
    TEST_TWICE,   /* !!p */
    TEST_PLAIN,   /* p, as a condition */
    TEST_EQUAL,   /* 0 == p, and from here on the opposite */
    TEST_NOT      /* !p */
};
enum exits {
    EXIT_ZERO,
    EXIT_ONE, /* ends all ranks before MPI_Finalize(), and one after it */
    EXIT_MPI, /* MPI_Abort(), likewise */
    EXIT_VARIABLE
};

struct node {
    kind what = kind::BLOCK;
    int a = 0, b = 0;
    std::vector<node> parts;
};

inline node make(kind what, int a = 0, std::vector<node> parts = {}, int b = 0)
{
    return {what, a, b, std::move(parts)};
}

inline node number(int value)
{
    return make(kind::NUMBER, value);
}

constexpr int GLOBAL = -1, ELEMENTS = 4;

struct variable {
    std::string name;
    int function = GLOBAL;
    bool is_static = false, is_parameter = false, is_array = false, is_communicator = false;
    bool has_pointer = false;
    bool is_pointer = false; /* to memory; its value is 1, or 0 if it is NULL */
    int initial = 0;
    int slot = 0; /* set by the compiler */

    bool is_local() const
    {
        return function != GLOBAL && !is_static;
    }
};

struct function {
    std::string name;
    bool returns_pointer = false;
    std::vector<int> parameters;
    node body;
};

struct program {
    std::vector<variable> variables;
    std::vector<function> functions; /* 0: main */
    int labels = 0;
    bool is_cuda = false; /* a kernel and its functions, for the threads of a block */
};

/* generate.cpp */
program generate(unsigned long seed, bool is_cuda);

/* print.cpp: the program in C or CUDA, with one call a line. */
std::string print(program &of);

/* print_cuda.cpp: what CUDA has in the place of MPI's calls and declarations. */
extern const char *const cuda_header;
std::string in_cuda(const node &n, const std::string &to, const std::string &from,
                    const std::string &rank);

} // namespace fuzz

#endif
