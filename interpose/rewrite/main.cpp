/* SPDX-License-Identifier: MIT */
#include "program.h"

#include <clang/Frontend/ASTUnit.h>
#include <clang/Tooling/CommonOptionsParser.h>
#include <clang/Tooling/Tooling.h>

#include <cstdio>

using namespace clang;

static llvm::cl::OptionCategory category("gpualloc rewrite");

int main(int argc, const char **argv)
{
    auto options = tooling::CommonOptionsParser::create(argc, argv, category);
    if (!options) {
        llvm::errs() << options.takeError();
        return 2;
    }
    tooling::ClangTool tool(options->getCompilations(), options->getSourcePathList());
    std::vector<std::unique_ptr<ASTUnit>> files;
    int failed = tool.buildASTs(files);
    rewrite::program all(false);
    for (auto &file : files) {
        all.add(file->getASTContext());
    }
    all.analyse();
    static const char *const names[] = {"together", "sizes differ", "divergent", "unknown"};
    for (const rewrite::decision &d : all.decisions) {
        rewrite::place at = rewrite::place_of(d.in->definition->getASTContext().getSourceManager(),
                                              d.site->expression->getBeginLoc());
        std::printf("%s:%u:%u: %s%s: %s%s", at.file.c_str(), at.line, at.column,
                    d.site->callee ? "call of " : "malloc in ",
                    (d.site->callee ? d.site->callee : d.in)->definition->getNameAsString().c_str(),
                    names[(int)d.what],
                    d.gets == rewrite::flag::always   ? ", true"
                    : d.gets == rewrite::flag::passed ? ", coalesce"
                                                      : "");
        for (const rewrite::cause *why = d.why; why; why = why->origin) {
            std::printf("; %u: %s", why->at.line, why->text.c_str());
        }
        std::printf("\n");
    }
    return failed;
}
