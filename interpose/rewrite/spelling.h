/* SPDX-License-Identifier: MIT
 *
 * Places in the text of a file that can be changed. A change of the text has the wanted meaning
 * only if the token there comes from the file and not from a macro, and if the file has the token
 * that the syntax tree has: macros may be empty, and may stand for brackets and keywords.
 */
#ifndef GPUALLOC_REWRITE_SPELLING_H
#define GPUALLOC_REWRITE_SPELLING_H

#include <clang/AST/ASTContext.h>
#include <clang/Basic/SourceManager.h>
#include <clang/Lex/Token.h>

#include <string>
#include <vector>

namespace rewrite
{

/* Why the source at that place cannot change; NULL if it can. `project`: the folder, with a slash
 * at its end, of the files that may be changed. */
const char *obstacle_at(clang::SourceLocation location, const clang::SourceManager &sources,
                        const std::string &project);

/* Likewise, and the token at the place must be `text`. */
const char *obstacle_to_token(clang::SourceLocation at, llvm::StringRef text,
                              const clang::ASTContext &context, const std::string &project);

/* Why nothing can be added to a list without arguments; NULL if it can. `left` and `right` are the
 * places of its parentheses. Between them are comments alone, or, if `may_be_void`, the word
 * `void`: a macro there may be empty or stand for that word. */
const char *obstacle_to_empty_list(clang::SourceLocation left, clang::SourceLocation right,
                                   bool may_be_void, const clang::ASTContext &context,
                                   const std::string &project);

/* Why the source from `begin` to `end`, which is behind it, cannot be replaced; NULL if it can. */
const char *obstacle_to_range(clang::SourceLocation begin, clang::SourceLocation end,
                              const clang::ASTContext &context, const std::string &project);

/* The tokens of a file from `begin` to `end`, before directives and macros have an effect. Both are
 * places of one file. */
std::vector<clang::Token> tokens_between(clang::SourceLocation begin, clang::SourceLocation end,
                                         const clang::ASTContext &context);

/* The place behind the token that begins at `last`, or behind the expansion of a macro that ends by
 * it. Not valid if it is in the middle of an expansion. */
clang::SourceLocation behind_token(clang::SourceLocation last, const clang::ASTContext &context);

/* The place is in a file of the project, or in a macro that is used there. */
bool is_in_project(clang::SourceLocation location, const clang::SourceManager &sources,
                   const std::string &project);

/* The absolute name of the file of a place in the source. */
std::string path_of(const clang::SourceManager &sources, clang::SourceLocation location);

/* The absolute name of a file or folder, without links if it exists. */
std::string real_path(llvm::StringRef name);

} // namespace rewrite

#endif
