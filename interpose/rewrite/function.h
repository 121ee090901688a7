/* SPDX-License-Identifier: MIT
 *
 * The analysis of one function: a forward data-flow analysis over its control-flow graph that finds
 * the variance of each expression, and for each block whether all threads that entered the
 * function reach it. It is optimistic: it begins with the assumption that nothing
 * varies, and every step can only add to that (variance.h), up to a fixed point.
 *
 * A value varies if it is computed from one that does, or is assigned in a block that not all
 * threads reach. A block is reached by all threads if no branch on which it is control-dependent
 * (graph.h) has a condition that varies, and no thread has left before.
 *
 * A pointer to an allocated block varies, but whether it is NULL does not, if the allocation is
 * collective: all threads of a block get memory, or all get none (gpualloc/coalesce.cuh). So
 * pointers have a second variance, that of `p == NULL`. Which allocations are collective is known
 * at last (decide.cpp). The analysis begins with the assumption that all are, and is continued
 * without those that are not until the assumption holds.
 */
#ifndef GPUALLOC_REWRITE_FUNCTION_H
#define GPUALLOC_REWRITE_FUNCTION_H

#include "graph.h"
#include "library.h"
#include "variance.h"

#include <clang/AST/Decl.h>
#include <clang/AST/Expr.h>
#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/SmallVector.h>

#include <memory>
#include <string>
#include <vector>

namespace rewrite
{

class function;

/* Collective calls of two kinds do not meet: those of MPI, or of all threads of a block, and those
 * of a warp. */
enum meeting : unsigned {
    OF_ALL = 1,
    OF_WARP = 2
};

/* The rest of the program, as the analysis of a function sees it. */
class surroundings
{
  public:
    virtual ~surroundings() = default;

    /* The function of the program that is called, or NULL if the program does not define it. */
    virtual function *find(const clang::FunctionDecl *called) = 0;

    /* The variance of a variable that outlives a call. */
    virtual variance global(const clang::VarDecl *variable) = 0;

    /* The variable is assigned a value that varies so; the function's own variance in terms of its
     * parameters is resolved over all calls. */
    virtual void assign_global(const clang::VarDecl *variable, const variance &value,
                               const function &in) = 0;

    /* A pointer to the variable is used in a way that the analysis does not follow. */
    virtual void share_global(const clang::VarDecl *variable, const cause *why) = 0;

    /* Why the call, of an allocation function or of one of the program, does not get the argument
     * in the function `in`, or NULL. */
    virtual const cause *stays_alone(const clang::Expr *call, const clang::FunctionDecl *in) = 0;

    /* Some ranks make a collective call alone. They may meet others at another such call. */
    virtual void meet_apart(unsigned kinds, const cause *why) = 0;

    /* The cause of that, for calls of that kind, or NULL. */
    virtual const cause *meets_apart(meeting kind) = 0;

    /* The program calls a function of which nothing is known. */
    virtual void call_unknown(const cause *why) = 0;

    /* The library function allocates in collective calls and takes the argument, or NULL. */
    virtual const allocation_function *registered(llvm::StringRef name) = 0;

    /* `why` is kept for ever. Equal keys with equal texts have one cause, the first. */
    virtual const cause *explain(const void *key, cause why) = 0;

    /* The cause that explain() has made, or NULL. */
    virtual const cause *explained(const void *key, llvm::StringRef text) const = 0;

    /* MPI calls end the program unless they succeed. */
    virtual bool errors_are_fatal() const = 0;

    /* The call, of a function that the program does not define, ends all ranks (endings.h). */
    virtual bool ends_all(const clang::CallExpr *call) const = 0;

    /* The threads are those of a CUDA kernel, not ranks. */
    virtual bool is_cuda() const = 0;
};

/* A call of which the report may say something: of a function of the program, or of one that
 * allocates. */
struct call_site {
    const clang::Expr *expression = nullptr;        /* a call, or a new expression */
    function *callee = nullptr;                     /* of the program; NULL if it allocates */
    const allocation_function *allocates = nullptr; /* NULL for `new`, and beside a callee */
    variance reached;                               /* whether all threads call together */
    std::vector<variance> arguments;
    variance size;       /* of an allocation, in bytes */
    variance alone;      /* whether the call gets no argument, or the value false */
    bool doomed = false; /* every path from here ends the whole program */
};

/* The events of a block, in order, for messages.h. */
struct event {
    enum kind {
        EXCHANGE,
        BARRIER,
        CALL,
        SITE
    } what;
    const cause *why; /* of EXCHANGE and BARRIER: the call that waits */
    size_t site;      /* of CALL and SITE: index into the sites */
};

/* The result of the analysis that callers use. */
struct summary {
    variance result;
    variance null;          /* whether the result, a pointer, is NULL */
    bool may_leave = false; /* a thread may end within it */
    variance leaves;        /* whether all threads end there together */
    unsigned may_meet = 0;  /* it has collective calls of these kinds (meeting) */
    variance meets;         /* whether all threads make its collective calls together */
};

class function
{
  public:
    /* `number`: in the order in which functions are analysed. */
    function(const clang::FunctionDecl *definition, size_t number, bool is_entry,
             surroundings &around);
    ~function();

    /* Analyse for the first time, or again after the surroundings have changed. Returns true if
     * the summary has changed. */
    bool analyse();

    const clang::FunctionDecl *const definition;
    const size_t number;
    const bool is_entry; /* main(), or a kernel: all threads begin here, with equal arguments */
    summary found;
    std::vector<call_site> sites;           /* as of the last analyse() */
    std::vector<std::vector<event>> events; /* of each block */

    /* A cause at a declaration or expression of the function. */
    const cause *explain_at(const clang::Expr *where, bool divergent, const std::string &text,
                            const cause *origin) const;
    const cause *explain_at(const clang::Decl *where, bool divergent, const std::string &text,
                            const cause *origin) const;

    /* NULL if Clang makes no control-flow graph of the function. */
    const control_graph *graph() const
    {
        return blocks.get();
    }

  private:
    struct state {
        std::vector<variance> variables;
        std::vector<variance> nulls; /* whether each variable, if it is a pointer, is NULL */
        variance left;               /* varies: some threads may have ended */
    };

    /* function.cpp: variables and blocks */
    void prepare();
    void find_variables();
    void find_escapes(const clang::Stmt *statement);
    void escape(const clang::VarDecl *variable, const clang::Expr *where);
    bool escapes_nowhere(const clang::CallExpr *call);
    bool reads_argv(const clang::Expr *argument) const;
    void find_ends();
    void find_parallel(const clang::Stmt *statement, const cause *why);
    void give_up(const clang::Stmt *statement, const cause *why);
    bool run_block(const clang::CFGBlock &block, state &now);
    bool finish_branch(const clang::CFGBlock &block, const state &now);
    variance control(unsigned block) const;

    /* expressions.cpp */
    void run(const clang::Stmt *statement);
    void run_effects(const clang::Stmt *statement);
    void run_declaration(const clang::VarDecl *variable);
    void run_return(const clang::Expr *result);

    /* calls.cpp */
    void run_call(const clang::CallExpr *call);
    void run_new(const clang::CXXNewExpr *call);
    void run_construction(const clang::CXXConstructExpr *call);
    void run_program_call(const clang::Expr *call, function *callee,
                          std::vector<variance> arguments);
    void run_library_call(const clang::CallExpr *call, const library_function &callee);
    void run_comparison(const clang::CallExpr *call, const library_function &known);
    void run_unknown_call(const clang::Expr *call, const std::string &name);
    void run_anything(const cause *why);
    void set_outputs(const clang::CallExpr *call, const library_function &callee);
    variance output(const clang::CallExpr *call, const library_function &callee, unsigned i);
    variance agreed(const clang::CallExpr *call, const library_function &callee);
    bool covers(const clang::CallExpr *call, const clang::VarDecl *variable) const;
    void note_effects(const clang::CallExpr *call, const library_function &callee);
    void add_registered(const clang::CallExpr *call);
    void note_early_exit();
    void leave(const variance &how);
    void meet(unsigned kinds, const variance &how);
    void add_site(call_site site);
    variance alone(const clang::Expr *call);
    void assign(const clang::Expr *target, const variance &value, const variance &null, bool keeps);
    void assign_variable(const clang::VarDecl *variable, const variance &value, bool keeps,
                         const clang::Expr *where);
    void assign_null(const clang::VarDecl *variable, const variance &null, bool keeps);
    variance load(const clang::Expr *place);
    void note_volatile(const clang::Expr *place);
    variance load_variable(const clang::VarDecl *variable, const clang::Expr *where);
    variance value(const clang::Expr *expression);
    variance compute(const clang::Expr *expression);
    variance of_children(const clang::Stmt *statement);

    /* nullness.cpp */
    variance null(const clang::Expr *pointer);
    variance compute_null(const clang::Expr *pointer);
    variance truth(const clang::Expr *condition);
    bool compute_test(const clang::Expr *expression, variance &found);
    bool is_null(const clang::Expr *pointer) const;
    variance because(bool divergent, const clang::Expr *where, const std::string &text,
                     const cause *origin = nullptr);

    const cause *explain(const void *key, bool divergent, clang::SourceLocation where,
                         const std::string &text, const cause *origin = nullptr) const;

    surroundings &around;
    bool prepared = false;
    std::unique_ptr<clang::CFG> cfg;
    std::unique_ptr<control_graph> blocks;
    std::vector<const clang::CFGBlock *> numbered;
    llvm::BitVector ends;        /* blocks that end the whole program, */
    llvm::BitVector early_exits; /* and blocks where threads may end by themselves */
    bool found_early_exit = false;
    llvm::DenseMap<const clang::VarDecl *, unsigned> variables; /* those that are followed */
    llvm::DenseMap<const clang::VarDecl *, const cause *> escaped;
    const clang::VarDecl *argv = nullptr; /* of main, while nothing writes to its strings */
    llvm::DenseMap<const clang::Stmt *, const cause *> parallel; /* those of OpenMP's threads */
    std::vector<state> at_end;                                   /* of each block */
    std::vector<variance> branches; /* of each block: its condition, and the block itself */
    llvm::DenseMap<const clang::Stmt *, variance> values;
    llvm::DenseMap<const clang::Stmt *, variance> nulls; /* of pointers, without parentheses */

    /* Of the block that is run. */
    state *now = nullptr;
    variance here; /* whether all threads reach it */
    unsigned at = 0;
};

/* Variables of this kind are followed, if their addresses are not taken. */
bool is_followed(const clang::VarDecl *variable);

/* The variable that an expression names, itself, a member or an element of it, or NULL. */
const clang::VarDecl *variable_of(const clang::Expr *place);

/* The indices of the elements on the way from the variable to the place. */
std::vector<const clang::Expr *> indices_of(const clang::Expr *place);

/* The expression begins by the expansion of the macro, perhaps within others, or is the name. */
bool is_named(const clang::Expr *expression, llvm::StringRef name,
              const clang::ASTContext &context);

/* The size of the basic MPI datatype that the expression is, as it is written in mpi.h, or 0. */
unsigned bytes_of_datatype(const clang::Expr *expression, const clang::ASTContext &context);

/* The function is no member and in no namespace but std, and the linker knows it by its name: one
 * that the library may have. */
bool is_global(const clang::FunctionDecl *f);

/* Why threads have other values of a constant initial value: "is an address", or NULL. */
const char *differs_at_first(const clang::Stmt *value, const clang::ASTContext &context);

/* The function gets a pointer to const as this argument. */
bool is_for_reading(const clang::FunctionDecl *called, unsigned argument);

/* `x` in `&x`, or NULL. */
const clang::VarDecl *variable_pointed_to(const clang::Expr *argument);

} // namespace rewrite

#endif
