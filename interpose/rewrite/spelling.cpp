/* SPDX-License-Identifier: MIT */
#include "spelling.h"

#include "variance.h"

#include <clang/Lex/Lexer.h>
#include <llvm/ADT/SmallString.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/Support/FileSystem.h>
#include <llvm/Support/Path.h>

#include <utility>

using namespace clang;

namespace rewrite
{

/* The name of a file without . and .. but with its links. Each file is asked for once. */
static const std::string &absolute_path(llvm::StringRef name)
{
    static llvm::StringMap<std::string> known;
    std::string &found = known[name];
    if (found.empty()) {
        llvm::SmallString<256> path(name);
        llvm::sys::fs::make_absolute(path);
        llvm::sys::path::remove_dots(path, true);
        found = path.str().str();
    }
    return found;
}

place place_of(const SourceManager &sources, SourceLocation location)
{
    SourceLocation at = sources.getExpansionLoc(location);
    if (at.isInvalid()) {
        return {"?", 0, 0};
    }
    return {absolute_path(sources.getFilename(at)), sources.getSpellingLineNumber(at),
            sources.getSpellingColumnNumber(at)};
}

std::string path_of(const SourceManager &sources, SourceLocation location)
{
    return real_path(sources.getFilename(sources.getFileLoc(location)));
}

bool is_in_project(SourceLocation location, const SourceManager &sources,
                   const std::string &project)
{
    std::string path = path_of(sources, location);
    return !sources.isInSystemHeader(location) &&
           llvm::StringRef(path).substr(0, project.size()) == project;
}

const char *obstacle_at(SourceLocation location, const SourceManager &sources,
                        const std::string &project)
{
    if (location.isInvalid()) {
        return "the place in the source is not known";
    }
    if (location.isMacroID()) {
        return "it is in a macro";
    }
    if (sources.isInSystemHeader(location)) {
        return "it is in a header of the system";
    }
    return is_in_project(location, sources, project) ? nullptr : "its file is not in the project";
}

std::string real_path(llvm::StringRef name)
{
    static llvm::StringMap<std::string> known; /* each file is asked for once */
    std::string &found = known[name];
    if (found.empty()) {
        llvm::SmallString<256> path;
        if (llvm::sys::fs::real_path(name, path)) { /* it does not exist */
            path = name;
            llvm::sys::fs::make_absolute(path);
            llvm::sys::path::remove_dots(path, true);
        }
        found = path.str().str();
    }
    return found;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* A lexer of the file of `at`, from there on. It does not expand macros. */
static Lexer lexer_at(SourceLocation at, const ASTContext &context)
{
    const SourceManager &sources = context.getSourceManager();
    llvm::StringRef text = sources.getBufferData(sources.getFileID(at));
    return Lexer(sources.getLocForStartOfFile(sources.getFileID(at)), context.getLangOpts(),
                 text.begin(), text.begin() + sources.getFileOffset(at), text.end());
}

const char *obstacle_to_token(SourceLocation at, llvm::StringRef text, const ASTContext &context,
                              const std::string &project)
{
    const SourceManager &sources = context.getSourceManager();
    if (const char *found = obstacle_at(at, sources, project)) {
        return found;
    }
    llvm::StringRef all = sources.getBufferData(sources.getFileID(at));
    Token token;
    lexer_at(at, context).LexFromRawLexer(token);
    bool is_spelled = token.getLength() == text.size() && token.getLocation() == at &&
                      all.substr(sources.getFileOffset(at), text.size()) == text;
    return is_spelled ? nullptr : "the file has another token there"; /* such as <% for { */
}

std::vector<Token> tokens_between(SourceLocation begin, SourceLocation end,
                                  const ASTContext &context)
{
    const SourceManager &sources = context.getSourceManager();
    std::vector<Token> found;
    Lexer lexer = lexer_at(begin, context);
    Token token;
    lexer.LexFromRawLexer(token);
    while (token.isNot(tok::eof) &&
           sources.getFileOffset(token.getLocation()) < sources.getFileOffset(end)) {
        found.push_back(token);
        lexer.LexFromRawLexer(token);
    }
    return found;
}

SourceLocation behind_token(SourceLocation last, const ASTContext &context)
{
    return Lexer::getLocForEndOfToken(last, 0, context.getSourceManager(), context.getLangOpts());
}

const char *obstacle_to_empty_list(SourceLocation left, SourceLocation right, bool may_be_void,
                                   const ASTContext &context, const std::string &project)
{
    const SourceManager &sources = context.getSourceManager();
    for (auto [at, text] : {std::make_pair(left, "("), std::make_pair(right, ")")}) {
        if (const char *found = obstacle_to_token(at, text, context, project)) {
            return found;
        }
    }
    if (sources.getFileID(left) != sources.getFileID(right)) {
        return "its parentheses are in two files";
    }
    std::vector<Token> inner = tokens_between(left.getLocWithOffset(1), right, context);
    bool is_void = may_be_void && inner.size() == 1 && inner[0].is(tok::raw_identifier) &&
                   inner[0].getRawIdentifier() == "void" && !inner[0].needsCleaning();
    return inner.empty() || is_void ? nullptr : "a macro or a directive is between its parentheses";
}

const char *obstacle_to_range(SourceLocation begin, SourceLocation end, const ASTContext &context,
                              const std::string &project)
{
    const SourceManager &sources = context.getSourceManager();
    for (SourceLocation at : {begin, end}) {
        if (const char *found = obstacle_at(at, sources, project)) {
            return found;
        }
    }
    if (sources.getFileID(begin) != sources.getFileID(end) ||
        sources.getFileOffset(end) < sources.getFileOffset(begin)) {
        return "it begins in one file and ends in another";
    }
    for (const Token &token : tokens_between(begin, end, context)) {
        if (token.is(tok::hash) && token.isAtStartOfLine()) {
            return "a directive is in it";
        }
    }
    return nullptr;
}

} // namespace rewrite
