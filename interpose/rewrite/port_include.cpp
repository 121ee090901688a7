/* SPDX-License-Identifier: MIT */
#include "port.h"

#include "library.h"

#include <clang/Basic/SourceManager.h>
#include <clang/Lex/Lexer.h>

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
