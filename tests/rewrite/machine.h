/* SPDX-License-Identifier: MIT
 *
 * Executes a program on several ranks. Each rank runs until it waits for another one, so that the
 * order is determined; programs without wildcard receives have one result in all orders.
 */
#ifndef GPUALLOC_TESTS_REWRITE_MACHINE_H
#define GPUALLOC_TESTS_REWRITE_MACHINE_H

#include "tree.h"

#include <map>
#include <string>
#include <vector>

namespace fuzz
{

enum class code : unsigned char {
    PUSH,
    POP,
    LOAD_LOCAL,
    LOAD_GLOBAL,
    STORE_LOCAL, /* keeps the value on the stack */
    STORE_GLOBAL,
    INDEX_LOCAL, /* loads from an array, at an index from the stack */
    INDEX_GLOBAL,
    INDEX_FIXED,
    SET_LOCAL, /* stores to an array: index, value; keeps the value */
    SET_GLOBAL,
    BINARY,
    NOT,
    JUMP,
    JUMP_IF,
    JUMP_UNLESS,
    CALL, /* function a, site b */
    RETURN,
    MALLOC, /* site b */
    EXIT,   /* a: with a failure */
    ABORT,
    MEET,    /* a collective call of kind a; the communicator is on the stack, below a value */
    RANK,    /* replaces the communicator on the stack by the rank in it */
    SIZE,    /* likewise by its size */
    SEND,    /* value, rank */
    RECEIVE, /* rank; leaves the value */
};

struct instruction {
    code what;
    int a = 0, b = 0;
};

struct compiled {
    std::vector<instruction> code;
    std::vector<int> entries; /* of each function */
    std::vector<int> locals;  /* of each function: how many; parameters are the first */
    std::vector<int> parameters;
    std::vector<int> globals; /* initial values */
};

/* compile.cpp. Fails if a label is missing or a break is outside of a loop. */
bool compile(program &of, compiled &to);

/* The argument that the call at a site gets. */
enum class argument : unsigned char {
    NONE,
    ALWAYS,
    PASSED
};

enum class outcome {
    DONE,
    DEADLOCK,
    BUDGET,    /* too many steps, or too deep a recursion */
    ABORTED,   /* abort() was called */
    ERRONEOUS, /* collective calls do not match, or a rank does not exist */
    MISMATCH   /* two ranks make different collective allocations */
};

/* One run. */
struct setting {
    int ranks = 2;
    int arguments = 1;             /* argc */
    int string = 0;                /* atoi(argv[1]) */
    bool buffered = true;          /* MPI_Send() does not wait */
    unsigned seed = 0;             /* of the requests that fail */
    int failures = 0;              /* percent of the allocations that give NULL */
    bool eager = true;             /* the root of MPI_Bcast() does not wait */
    bool backward = false;         /* the order of the ranks */
    bool collective = false;       /* allocations wait */
    bool is_cuda = false;          /* barriers do not wait for ranks that have ended */
    std::map<int, argument> sites; /* by lines */
};

/* `why`: describes an outcome other than DONE. */
outcome execute(const compiled &program, const setting &how, std::string &why);

} // namespace fuzz

#endif
