/* SPDX-License-Identifier: MIT */
#include "port.h"

#include "program.h"
#include "walk.h"

#include <clang/AST/Attr.h>
#include <clang/Basic/SourceManager.h>
#include <clang/Lex/Lexer.h>
#include <llvm/ADT/StringExtras.h>

#include <algorithm>
#include <map>
#include <set>

using namespace clang;
using llvm::dyn_cast;
using llvm::isa;

namespace rewrite
{
namespace
{

const char MAIN[] = "gpualloc_main";
const char HEADER[] = "#include <gpualloc/gpu_mpi.cuh>";

/* Functions that a kernel may call: those of gpualloc/gpu_mpi.cuh and CUDA's. CUDA also has C's
 * functions of numbers, with the endings f and, in host code alone, l. */
const char *const available[] = {
    "MPI_Abort",     "MPI_Allgather", "MPI_Allreduce", "MPI_Alltoall",
    "MPI_Barrier",   "MPI_Bcast",     "MPI_Comm_rank", "MPI_Comm_size",
    "MPI_Finalize",  "MPI_Gather",    "MPI_Get_count", "MPI_Get_processor_name",
    "MPI_Init",      "MPI_Recv",      "MPI_Reduce",    "MPI_Scatter",
    "MPI_Send",      "MPI_Sendrecv",  "MPI_Wtick",     "MPI_Wtime",
    "__assert_fail", "abort",         "abs",           "atoi",
    "atol",          "calloc",        "clock",         "exit",
    "fflush",        "fprintf",       "free",          "init_malloc",
    "clean_malloc",  "labs",          "llabs",         "malloc",
    "memcmp",        "memcpy",        "memmove",       "memset",
    "printf",        "putchar",       "puts",          "rand",
    "srand",         "strcat",        "strcmp",        "strcpy",
    "strlen",        "strncmp"};
const char *const numeric[] = {
    "acos",      "acosh",    "asin",      "asinh",  "atan",   "atan2",  "atanh",   "cbrt",
    "ceil",      "copysign", "cos",       "cosh",   "erf",    "erfc",   "exp",     "exp2",
    "expm1",     "fabs",     "fdim",      "floor",  "fma",    "fmax",   "fmin",    "fmod",
    "frexp",     "hypot",    "ilogb",     "ldexp",  "lgamma", "llrint", "llround", "log",
    "log10",     "log1p",    "log2",      "logb",   "lrint",  "lround", "modf",    "nearbyint",
    "nextafter", "pow",      "remainder", "remquo", "rint",   "round",  "scalbln", "scalbn",
    "sin",       "sincos",   "sinh",      "sqrt",   "tan",    "tanh",   "tgamma",  "trunc"};

bool is_among(llvm::StringRef name, llvm::ArrayRef<const char *> names)
{
    return std::any_of(names.begin(), names.end(),
                       [&](const char *known) { return name == known; });
}

bool is_available(llvm::StringRef name)
{
    return is_among(name, available) || is_among(name, numeric) ||
           (has_suffix(name, "f") && is_among(name.drop_back(), numeric));
}

/* Call visit(statement) for each statement and expression, also in the operands of sizeof. */
template <typename Visit> void each_part(const Stmt *statement, const Visit &visit)
{
    if (!statement) {
        return;
    }
    visit(statement);
    for (const Stmt *child : statement->children()) {
        each_part(child, visit);
    }
}

/* ---- one file -------------------------------------------------------------------------------- */

class file_port
{
  public:
    file_port(collector &to, program &all, ASTContext &context, std::vector<not_ported> &undone)
        : to(to), all(all), context(context), sources(context.getSourceManager()), undone(undone)
    {
    }

    void run();

  private:
    void look_at_function(const FunctionDecl *f);
    void look_at_body(const FunctionDecl *f);
    void look_at_call(const FunctionDecl *in, const CallExpr *call);
    void add_variable(const VarDecl *v, const FunctionDecl *in);
    void port_main(const FunctionDecl *f);
    void port_variables();
    std::string declare(const VarDecl *v, const std::string &name) const;
    const char *obstacle_to(const VarDecl *v) const;
    void refer(const DeclRefExpr *name);
    void include_header();
    bool is_ours(SourceLocation location) const
    {
        return !obstacle_at(location, sources, all.folder());
    }
    void leave(SourceLocation at, std::string what);
    std::string name_of(const VarDecl *v) const;

    /* Variables that are declared together, as in `static int a, *b;`. */
    struct declaration {
        std::vector<const VarDecl *> variables;
        const FunctionDecl *in = nullptr;
    };

    collector &to;
    program &all;
    ASTContext &context;
    const SourceManager &sources;
    std::vector<not_ported> &undone;
    std::map<unsigned, declaration> declarations;       /* by where they begin */
    std::set<const VarDecl *> each_rank;                /* canonical */
    std::map<const FunctionDecl *, std::string> before; /* a function: its static variables */
};

void file_port::leave(SourceLocation at, std::string what)
{
    undone.push_back({place_of(sources, at), std::move(what)});
}

/* ---- functions ------------------------------------------------------------------------------- */

void file_port::look_at_function(const FunctionDecl *f)
{
    if (!all.has(f) || !is_ours(f->getBeginLoc())) {
        if (all.has(f) && is_in_project(f->getBeginLoc(), sources, all.folder())) {
            leave(f->getLocation(), "a macro declares " + f->getNameAsString() + "()");
        }
        return;
    }
    if (f->isVariadic()) {
        leave(f->getLocation(), f->getNameAsString() +
                                    "() has a variable number of arguments, which CUDA does not "
                                    "have in kernels");
    }
    to.add(change::DEVICE, sources, f->getBeginLoc(), 0, "__device__ ");
    if (f->isMain()) {
        port_main(f);
    }
    if (f->doesThisDeclarationHaveABody()) {
        look_at_body(f);
    }
}

void file_port::port_main(const FunctionDecl *f)
{
    to.add(change::NAME, sources, f->getLocation(), sizeof "main" - 1, MAIN);
    const auto *body = dyn_cast_or_null<CompoundStmt>(f->getBody());
    if (!body || !f->doesThisDeclarationHaveABody()) {
        return;
    }
    if (body->body_empty() || !isa<ReturnStmt>(body->body_back())) {
        to.add(change::RETURN, sources, body->getRBracLoc(), 0, "  return 0;\n");
    }
    FileID file = sources.getFileID(f->getLocation());
    llvm::StringRef text = sources.getBufferData(file);
    to.add(change::PROGRAM, sources,
           sources.getLocForStartOfFile(file).getLocWithOffset((int)text.size()), 0,
           std::string(has_suffix(text, "\n") ? "\n" : "\n\n") + "GA_MPI_PROGRAM(" + MAIN + ")\n");
}

void file_port::look_at_call(const FunctionDecl *in, const CallExpr *call)
{
    const FunctionDecl *called = call->getDirectCallee();
    if (called && called->getIdentifier() && !all.has(called) && !is_available(called->getName()) &&
        !has_prefix(called->getName(), "__builtin_")) {
        leave(call->getBeginLoc(), called->getNameAsString() + "(), which " +
                                       in->getNameAsString() +
                                       "() calls, has no version for kernels");
    }
}

void file_port::look_at_body(const FunctionDecl *f)
{
    each_part(f->getBody(), [&](const Stmt *part) {
        if (const auto *call = dyn_cast<CallExpr>(part)) {
            look_at_call(f, call);
        } else if (const auto *statement = dyn_cast<DeclStmt>(part)) {
            for (const Decl *d : statement->decls()) {
                const auto *v = dyn_cast<VarDecl>(d);
                if (v && v->hasGlobalStorage()) {
                    add_variable(v, f);
                } else if (v && v->getType()->isVariableArrayType()) {
                    leave(v->getLocation(), v->getNameAsString() +
                                                " has a variable length, which CUDA does not have");
                }
            }
        }
    });
}

/* ---- variables ------------------------------------------------------------------------------- */

void file_port::add_variable(const VarDecl *v, const FunctionDecl *in)
{
    if (!is_in_project(v->getLocation(), sources, all.folder())) {
        return;
    }
    if (!is_ours(v->getBeginLoc())) {
        leave(v->getLocation(), "a macro declares " + v->getNameAsString());
        return;
    }
    if (context.getBaseElementType(v->getType()).isConstQualified()) {
        to.add(change::DEVICE, sources, v->getBeginLoc(), 0, "__device__ ");
        return;
    }
    declaration &d = declarations[sources.getFileOffset(v->getBeginLoc())];
    d.variables.push_back(v);
    d.in = in;
}

/* The name of a static variable of a function, outside of it, has the function's name before it. */
std::string file_port::name_of(const VarDecl *v) const
{
    const auto *in = dyn_cast<FunctionDecl>(v->getDeclContext());
    return (in && !v->hasExternalStorage() ? in->getNameAsString() + "_" : "") +
           v->getNameAsString();
}

const char *file_port::obstacle_to(const VarDecl *v) const
{
    const TagDecl *tag = context.getBaseElementType(v->getType())->getAsTagDecl();
    if (tag && !tag->getIdentifier() && !tag->getTypedefNameForAnonDecl()) {
        return "its type has no name";
    }
    if (tag && isa<FunctionDecl>(tag->getDeclContext()) && !v->hasExternalStorage()) {
        return "its type is known in its function alone";
    }
    bool refers = false;
    each_part(v->getInit(), [&](const Stmt *part) {
        const auto *name = dyn_cast<DeclRefExpr>(part);
        const auto *other = name ? dyn_cast<VarDecl>(name->getDecl()) : nullptr;
        refers = refers || (other && other->hasGlobalStorage());
    });
    return refers ? "its initial value has another variable" : nullptr;
}

std::string file_port::declare(const VarDecl *v, const std::string &name) const
{
    PrintingPolicy policy(context.getLangOpts());
    policy.Bool = true;
    bool is_definition = v->isThisDeclarationADefinition() == VarDecl::Definition ||
                         (!v->getDefinition() && v->getActingDefinition() == v) ||
                         v->isStaticLocal();
    bool is_static = v->getStorageClass() == SC_Static;
    std::string text = std::string(is_static        ? "static "
                                   : !is_definition ? "extern "
                                                    : "") +
                       "__device__ ga_mpi_global<" + v->getType().getAsString(policy) + "> " + name;
    if (!is_definition) {
        return is_static ? "" : text + ";"; /* C++ has no tentative definitions */
    }
    const Expr *initial = v->getInit();
    std::string value;
    if (initial) {
        value = Lexer::getSourceText(CharSourceRange::getTokenRange(initial->getSourceRange()),
                                     sources, context.getLangOpts())
                    .str();
        if (v->getType()->isScalarType() &&
            !context.hasSameUnqualifiedType(v->getType(), initial->IgnoreImpCasts()->getType())) {
            /* in braces C++ refuses to narrow */
            value = "(" + v->getType().getAsString(policy) + ")(" + value + ")";
        }
    }
    return text + " = {" + value + "};\nGA_MPI_EACH_RANK(" + name + ")";
}

void file_port::port_variables()
{
    for (auto &[offset, d] : declarations) {
        const VarDecl *first = d.variables.front(), *last = d.variables.back();
        SourceLocation begin = first->getBeginLoc();
        SourceLocation end = Lexer::findLocationAfterToken(last->getEndLoc(), tok::semi, sources,
                                                           context.getLangOpts(), false);
        std::string text;
        for (const VarDecl *v : d.variables) {
            const char *why = end.isInvalid() ? "its declaration is too complex" : obstacle_to(v);
            if (why) {
                leave(v->getLocation(),
                      "each rank needs its own " + v->getNameAsString() + ", but " + why);
                text.clear();
                break;
            }
            const TagDecl *tag = context.getBaseElementType(v->getType())->getAsTagDecl();
            if (tag && v == first && tag->isEmbeddedInDeclarator() &&
                tag->isThisDeclarationADefinition() &&
                sources.isPointWithin(tag->getBeginLoc(), begin, end)) {
                text += Lexer::getSourceText(CharSourceRange::getTokenRange(tag->getSourceRange()),
                                             sources, context.getLangOpts())
                            .str() +
                        ";\n";
            }
            text += declare(v, name_of(v));
            text += v == last ? "" : "\n";
        }
        if (text.empty()) {
            continue;
        }
        unsigned length = sources.getFileOffset(end) - offset;
        for (const VarDecl *v : d.variables) {
            each_rank.insert(v->getCanonicalDecl());
        }
        if (d.in && !first->hasExternalStorage()) {
            before[d.in] += text + "\n";
            text = ";";
        }
        to.add(change::VARIABLE, sources, begin, length, text);
    }
    for (const auto &[f, text] : before) {
        to.add(change::VARIABLE, sources, f->getBeginLoc(), 0, text);
    }
}

/* The rank's own variable, in the place of all ranks'. */
void file_port::refer(const DeclRefExpr *name)
{
    const auto *v = dyn_cast<VarDecl>(name->getDecl());
    if (!v || !each_rank.count(v->getCanonicalDecl())) {
        return;
    }
    SourceLocation at = sources.getSpellingLoc(name->getLocation());
    if (!is_ours(at)) {
        leave(name->getBeginLoc(),
              "a macro names " + v->getNameAsString() + ", of which each rank has its own");
        return;
    }
    SourceLocation end = Lexer::getLocForEndOfToken(at, 0, sources, context.getLangOpts());
    std::string whole = name_of(v);
    if (whole != v->getNameAsString()) {
        to.add(change::NAME, sources, at, (unsigned)v->getNameAsString().size(), whole);
    }
    to.add(change::OWN, sources, end, 0, ".own()");
}

/* ---- headers --------------------------------------------------------------------------------- */

/* Replace mpi.h by the header of MPI on a GPU. A file that changes without it includes the header
 * first. */
void file_port::include_header()
{
    for (unsigned i = 0; i < sources.local_sloc_entry_size(); i++) {
        const SrcMgr::SLocEntry &entry = sources.getLocalSLocEntry(i);
        SourceLocation begin = entry.isFile()
                                   ? SourceLocation::getFromRawEncoding(entry.getOffset())
                                   : SourceLocation();
        FileID file = sources.getFileID(begin);
        if (begin.isInvalid() || file == FileID() || !is_ours(begin)) {
            continue;
        }
        bool changes = to.parsed.count(real_path(sources.getFilename(begin))) != 0;
        bool found = false;
        llvm::StringRef text = sources.getBufferData(file);
        for (llvm::StringRef rest = text; !rest.empty();) {
            auto [line, after] = rest.split('\n');
            llvm::StringRef trimmed = line.trim();
            if (trimmed.consume_front("#") &&
                (trimmed = trimmed.ltrim()).consume_front("include") &&
                (has_prefix(trimmed = trimmed.ltrim(), "<mpi.h>") ||
                 has_prefix(trimmed, "\"mpi.h\""))) {
                to.add(change::INCLUDE, sources,
                       begin.getLocWithOffset((int)(line.data() - text.data())),
                       (unsigned)line.size(), HEADER);
                found = true;
            }
            rest = after;
        }
        if (changes && !found) {
            to.add(change::INCLUDE, sources, begin, 0, std::string(HEADER) + "\n");
        }
    }
}

void file_port::run()
{
    std::vector<const FunctionDecl *> functions;
    each_declaration(
        context.getTranslationUnitDecl(),
        [&](const FunctionDecl *f) {
            functions.push_back(f);
            look_at_function(f);
        },
        [&](const VarDecl *v) { add_variable(v, nullptr); });
    port_variables();
    for (const FunctionDecl *f : functions) {
        if (f->doesThisDeclarationHaveABody() && all.has(f)) {
            each_part(f->getBody(), [&](const Stmt *part) {
                if (const auto *name = dyn_cast<DeclRefExpr>(part)) {
                    refer(name);
                }
            });
        }
    }
    include_header();
}

} // namespace

std::vector<not_ported> add_port(collector &to, program &all,
                                 const std::vector<ASTContext *> &files)
{
    std::vector<not_ported> undone;
    for (ASTContext *context : files) {
        file_port(to, all, *context, undone).run();
    }
    std::sort(undone.begin(), undone.end());
    undone.erase(std::unique(undone.begin(), undone.end()), undone.end());
    return undone;
}

} // namespace rewrite
