/* SPDX-License-Identifier: MIT */
#include "decisions.h"

#include <clang/AST/ASTConsumer.h>
#include <clang/AST/ASTContext.h>
#include <clang/Basic/SourceManager.h>
#include <clang/Basic/TargetInfo.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/CompilerInvocation.h>
#include <clang/Frontend/FrontendAction.h>
#include <clang/Lex/PreprocessorOptions.h>
#include <llvm/Support/MemoryBuffer.h>

#include <memory>

using namespace clang;

namespace fuzz
{
namespace
{

/* An analysis with a wrong rule. */
class trusting_program : public rewrite::program
{
  public:
    using program::program;

    const rewrite::cause *stays_alone(const Expr *, const FunctionDecl *) override
    {
        return nullptr;
    }
};

class consumer : public ASTConsumer
{
  public:
    consumer(rewrite::grade by, bool trusts_null, bool is_cuda, decisions &found)
        : by(by), trusts_null(trusts_null), is_cuda(is_cuda), found(found)
    {
    }

    void HandleTranslationUnit(ASTContext &context) override
    {
        if (context.getDiagnostics().hasErrorOccurred()) {
            return;
        }
        std::unique_ptr<rewrite::program> made =
            trusts_null ? std::make_unique<trusting_program>(is_cuda, by, "")
                        : std::make_unique<rewrite::program>(is_cuda, by, "");
        rewrite::program &all = *made;
        all.add(context);
        all.analyse();
        found.steps = all.steps;
        const SourceManager &sources = context.getSourceManager();
        for (const rewrite::decision &d : all.decisions) {
            note(d, (int)sources.getPresumedLineNumber(d.site->expression->getBeginLoc()));
        }
    }

  private:
    void note(const rewrite::decision &d, int line)
    {
        if (!d.site->callee) {
            found.allocations++;
            found.together += d.gets != rewrite::flag::none;
        }
        if (d.gets != rewrite::flag::none) {
            found.arguments[line] =
                d.gets == rewrite::flag::always ? argument::ALWAYS : argument::PASSED;
        }
    }

    rewrite::grade by;
    bool trusts_null, is_cuda;
    decisions &found;
};

class action : public ASTFrontendAction
{
  public:
    action(rewrite::grade by, bool trusts_null, bool is_cuda, decisions &found)
        : by(by), trusts_null(trusts_null), is_cuda(is_cuda), found(found)
    {
    }

    std::unique_ptr<ASTConsumer> CreateASTConsumer(CompilerInstance &, llvm::StringRef) override
    {
        return std::make_unique<consumer>(by, trusts_null, is_cuda, found);
    }

  private:
    rewrite::grade by;
    bool trusts_null, is_cuda;
    decisions &found;
};

} // namespace

/* Without the driver, which takes longer than all the rest. */
bool decide(const std::string &text, rewrite::grade by, bool trusts_null, bool is_cuda,
            decisions &found)
{
    static const char *const in_c[] = {
        "-triple", "x86_64-unknown-linux-gnu", "-fsyntax-only", "-w", "-x", "c", "program.c"};
    static const char *const in_cuda[] = {"-triple",
                                          "nvptx64-nvidia-cuda",
                                          "-aux-triple",
                                          "x86_64-unknown-linux-gnu",
                                          "-fcuda-is-device",
                                          "-fsyntax-only",
                                          "-w",
                                          "-x",
                                          "cuda",
                                          "program.c"};
    llvm::ArrayRef<const char *> arguments = in_c;
    if (is_cuda) {
        arguments = in_cuda;
    }
    CompilerInstance compiler;
    compiler.createDiagnostics(new IgnoringDiagConsumer);
    auto invocation = std::make_shared<CompilerInvocation>();
    CompilerInvocation::CreateFromArgs(*invocation, arguments, compiler.getDiagnostics());
    invocation->getPreprocessorOpts().addRemappedFile(
        "program.c", llvm::MemoryBuffer::getMemBuffer(text, "program.c", true).release());
    compiler.setInvocation(std::move(invocation));
    action parse(by, trusts_null, is_cuda, found);
    return compiler.ExecuteAction(parse) && !compiler.getDiagnostics().hasErrorOccurred();
}

} // namespace fuzz
