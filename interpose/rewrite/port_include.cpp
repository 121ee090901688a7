/* SPDX-License-Identifier: MIT */
#include "port.h"

#include "library.h"

#include <clang/Basic/SourceManager.h>
#include <clang/Lex/Lexer.h>
#include <llvm/ADT/ArrayRef.h>

#include <algorithm>

using namespace clang;

namespace rewrite
{
namespace
{

const char HEADER_NAME[] = "<gpualloc/gpu_mpi.cuh>";

/* Replace the name of mpi.h in a file. True if the header is then included before all changes of
 * the file, in any configuration. */
bool replace_include(collector &to, const ASTContext &context, FileID file, SourceLocation begin)
{
    const SourceManager &sources = context.getSourceManager();
    llvm::StringRef text = sources.getBufferData(file);
    Lexer lexer(begin, context.getLangOpts(), text.begin(), text.begin(), text.end());
    Token token;
    int depth = 0, guard = 0; /* conditions around a place, and around the whole file */
    bool is_first = true, found = false;
    while (!lexer.LexFromRawLexer(token)) {
        bool begins_file = is_first;
        is_first = false;
        if (token.isNot(tok::hash) || !token.isAtStartOfLine() || lexer.LexFromRawLexer(token) ||
            token.isNot(tok::raw_identifier)) {
            continue;
        }
        llvm::StringRef directive = token.getRawIdentifier();
        if (has_prefix(directive, "if")) {
            depth++;
            guard = begins_file && directive == "ifndef" ? 1 : guard;
        } else if (directive == "endif") {
            depth--;
        } else if (directive == "include" && !lexer.LexFromRawLexer(token)) {
            unsigned at = sources.getFileOffset(token.getLocation());
            llvm::StringRef name = text.substr(at);
            if (has_prefix(name, "<mpi.h>") || has_prefix(name, "\"mpi.h\"")) {
                bool is_early = depth <= guard && !to.changes_before(path_of(sources, begin), at);
                found = found || is_early;
                to.add(change::INCLUDE, sources, token.getLocation(), sizeof "<mpi.h>" - 1,
                       HEADER_NAME);
            }
        }
    }
    return found;
}

} // namespace

/* Functions that a kernel may call: those of gpualloc/gpu_mpi.cuh and CUDA's. CUDA also has C's
 * functions of numbers, with the endings f and, in host code alone, l. */
const char *const available[] = {
    "MPI_Abort",     "MPI_Allgather", "MPI_Allreduce", "MPI_Alltoall",
    "MPI_Barrier",   "MPI_Bcast",     "MPI_Comm_rank", "MPI_Comm_size",
    "MPI_Finalize",  "MPI_Gather",    "MPI_Get_count", "MPI_Get_processor_name",
    "MPI_Init",      "MPI_Recv",      "MPI_Reduce",    "MPI_Scatter",
    "MPI_Send",      "MPI_Sendrecv",  "MPI_Wtick",     "MPI_Wtime",
    "__assert_fail", "abort",         "atoi",          "atol",
    "calloc",        "clock",         "exit",          "fflush",
    "fprintf",       "free",          "malloc",        "memcmp",
    "memcpy",        "memmove",       "memset",        "printf",
    "putchar",       "puts",          "rand",          "srand",
    "strcat",        "strcmp",        "strcpy",        "strlen",
    "strncmp"};
const char *const numeric[] = {
    "acos",      "acosh",    "asin",      "asinh",  "atan",   "atan2",  "atanh",   "cbrt",
    "ceil",      "copysign", "cos",       "cosh",   "erf",    "erfc",   "exp",     "exp2",
    "expm1",     "fabs",     "fdim",      "floor",  "fma",    "fmax",   "fmin",    "fmod",
    "frexp",     "hypot",    "ilogb",     "ldexp",  "lgamma", "llrint", "llround", "log",
    "log10",     "log1p",    "log2",      "logb",   "lrint",  "lround", "modf",    "nearbyint",
    "nextafter", "pow",      "remainder", "remquo", "rint",   "round",  "scalbln", "scalbn",
    "sin",       "sincos",   "sinh",      "sqrt",   "tan",    "tanh",   "tgamma",  "trunc"};

static bool is_among(llvm::StringRef name, llvm::ArrayRef<const char *> names)
{
    return std::any_of(names.begin(), names.end(),
                       [&](const char *known) { return name == known; });
}

/* C++ has functions of one name for several types of numbers. */
bool is_numeric(llvm::StringRef name)
{
    return is_among(name, numeric) || name == "abs" || name == "labs" || name == "llabs";
}

bool is_available(llvm::StringRef name)
{
    return is_among(name, available) || is_numeric(name) ||
           (has_suffix(name, "f") && is_among(name.drop_back(), numeric));
}

void include_header(collector &to, const ASTContext &context, const std::string &project)
{
    const SourceManager &sources = context.getSourceManager();
    for (unsigned i = 0; i < sources.local_sloc_entry_size(); i++) {
        const SrcMgr::SLocEntry &entry = sources.getLocalSLocEntry(i);
        SourceLocation begin = entry.isFile()
                                   ? SourceLocation::getFromRawEncoding(entry.getOffset())
                                   : SourceLocation();
        FileID file = sources.getFileID(begin);
        if (begin.isInvalid() || file == FileID() || obstacle_at(begin, sources, project)) {
            continue;
        }
        bool changes = to.parsed.count(path_of(sources, begin)) != 0;
        if (!replace_include(to, context, file, begin) && changes) {
            to.add(change::INCLUDE, sources, begin, 0,
                   std::string("#include ") + HEADER_NAME + "\n");
        }
    }
}

} // namespace rewrite
