/* SPDX-License-Identifier: MIT
 *
 * `gpualloc rewrite`: reads the sources, prints a verdict for each allocation, and writes the
 * changed sources. No file is written unless all could be parsed and can be written.
 */
#include "edit.h"
#include "port.h"
#include "program.h"
#include "report.h"

#include <clang/AST/ASTContext.h>
#include <clang/Basic/Version.h>
#include <clang/Frontend/ASTUnit.h>
#include <clang/Tooling/CompilationDatabase.h>
#include <clang/Tooling/Tooling.h>
#include <llvm/ADT/SmallString.h>
#include <llvm/Support/FileSystem.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/Path.h>

#include <argp.h>
#include <cstdio>
#include <set>
#include <unistd.h>

using namespace clang;
namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;

namespace
{

enum : int {
    FAILED = 1,
    USAGE = 2,
    INCOMPLETE = 3 /* written, but not all of the port is done */
};
enum class format {
    text,
    json,
    fixits
};

struct request {
    bool cuda = false, ports = false;
    rewrite::grade by = rewrite::grade::flow;
    format as = format::text;
    bool dry_run = false, in_place = false;
    std::string out, project = ".", library, build;
    std::vector<std::string> files;
};

enum key : int {
    KEY_FOR = 256,
    KEY_GRADE,
    KEY_FORMAT,
    KEY_DRY_RUN,
    KEY_IN_PLACE,
    KEY_PROJECT,
    KEY_LIBRARY,
    KEY_PORT
};

const argp_option options[] = {
    {"for", KEY_FOR, "PROGRAM", 0,
     "mpi: ranks of MPI become threads (default); cuda: the files have kernels", 0},
    {"grade", KEY_GRADE, "GRADE", 0,
     "flow: an analysis of data flow (default); pattern: calls below no if, loop or ?:, as in the "
     "paper of 2022; callgraph: pattern, and functions that allocate through others. The last two "
     "are not safe. none: no call gets the argument",
     0},
    {"format", KEY_FORMAT, "FORMAT", 0,
     "text: a line for each allocation (default); json: these and the changes; fixits: the "
     "changes, as Clang prints them",
     0},
    {"dry-run", KEY_DRY_RUN, nullptr, 0, "write no files (default)", 0},
    {"in-place", KEY_IN_PLACE, nullptr, 0, "write the changed files", 0},
    {"out", 'o', "DIR", 0, "write the files, changed or not, to DIR", 0},
    {"project", KEY_PROJECT, "DIR", 0,
     "change no files outside of DIR (default: the working directory)", 0},
    {"library", KEY_LIBRARY, "FILE", 0,
     "FILE names functions, one a line, that take the argument last, as MPI_Alltoall does", 0},
    {"port", KEY_PORT, nullptr, 0,
     "also make the MPI program one for a GPU, to be compiled with gpualloc/gpu_mpi.cuh", 0},
    {"build", 'p', "DIR", 0, "take the compiler's flags from DIR/compile_commands.json", 0},
    {nullptr, 0, nullptr, 0, nullptr, 0}};

const char doc[] =
    "Find the calls of malloc that all ranks of an MPI program, or all threads of a CUDA block, "
    "make together for equally many bytes, and give them an argument, so that one block of memory "
    "serves them all. Prints a verdict for each call.\v"
    "  gpualloc rewrite solver.c -- -I/usr/include/mpi\n"
    "  gpualloc rewrite --in-place -p build src/*.c\n"
    "\n"
    "Without -- and -p, the flags are those of compile_commands.json in a folder above the first "
    "file.";

template <typename T>
T choose(argp_state *state, const char *option, const char *text,
         std::initializer_list<std::pair<const char *, T>> known)
{
    std::string names;
    for (const auto &[name, value] : known) {
        if (llvm::StringRef(text) == name) {
            return value;
        }
        names += std::string(names.empty() ? "" : ", ") + name;
    }
    argp_error(state, "--%s=%s: expected one of %s", option, text, names.c_str());
    return known.begin()->second;
}

error_t parse(int key, char *text, argp_state *state)
{
    auto &of = *static_cast<request *>(state->input);
    switch (key) {
    case KEY_FOR:
        of.cuda = choose<bool>(state, "for", text, {{"mpi", false}, {"cuda", true}});
        return 0;
    case KEY_GRADE:
        of.by = choose<rewrite::grade>(state, "grade", text,
                                       {{"flow", rewrite::grade::flow},
                                        {"callgraph", rewrite::grade::call_graph},
                                        {"pattern", rewrite::grade::pattern},
                                        {"none", rewrite::grade::none}});
        return 0;
    case KEY_FORMAT:
        of.as = choose<format>(
            state, "format", text,
            {{"text", format::text}, {"json", format::json}, {"fixits", format::fixits}});
        return 0;
    case KEY_DRY_RUN:
        of.dry_run = true;
        return 0;
    case KEY_IN_PLACE:
        of.in_place = true;
        return 0;
    case 'o':
        of.out = text;
        return 0;
    case KEY_PROJECT:
        of.project = text;
        return 0;
    case KEY_LIBRARY:
        of.library = text;
        return 0;
    case KEY_PORT:
        of.ports = true;
        return 0;
    case 'p':
        of.build = text;
        return 0;
    case ARGP_KEY_ARG:
        of.files.push_back(text);
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "no files");
        return 0;
    case ARGP_KEY_END:
        if (of.dry_run + of.in_place + !of.out.empty() > 1) {
            argp_error(state, "--dry-run, --in-place and --out: give one of them");
        }
        if (of.ports && of.cuda) {
            argp_error(state, "--port: expected --for=mpi");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

void print_version(FILE *stream, argp_state *state)
{
    (void)state;
    std::fprintf(stream, "gpualloc " GA_REWRITE_VERSION ", with Clang " CLANG_VERSION_STRING "\n");
}

int complain(const llvm::Twine &text)
{
    llvm::errs() << "gpualloc rewrite: " << text << '\n';
    return FAILED;
}

/* Register the functions of the file --library. */
bool read_library(const std::string &library, rewrite::program &all)
{
    auto text = llvm::MemoryBuffer::getFile(library);
    if (!text) {
        complain("--library=" + library + ": " + text.getError().message());
        return false;
    }
    llvm::SmallVector<llvm::StringRef, 16> lines;
    (*text)->getBuffer().split(lines, '\n');
    for (llvm::StringRef line : lines) {
        line = line.split('#').first.trim();
        if (line.empty()) {
            continue;
        }
        if (line.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                   "0123456789_") != llvm::StringRef::npos) {
            complain("--library=" + library + ": \"" + line + "\": expected a function's name");
            return false;
        }
        all.library(line.str());
    }
    return true;
}

/* ---- writing -------------------------------------------------------------------------------- */

struct output {
    std::string path, text;
};

/* The new text of a file, which may be the old one. Fails if it is not as it was parsed. */
bool make_output(const request &of, const std::string &name, const rewrite::change_set &changes,
                 std::vector<output> &to)
{
    auto now = llvm::MemoryBuffer::getFile(name);
    auto parsed = changes.parsed.find(name);
    if (!now || (parsed != changes.parsed.end() && (*now)->getBuffer() != parsed->second)) {
        complain(name + " has changed since it was parsed; nothing is written");
        return false;
    }
    std::string where = name;
    if (!of.out.empty()) {
        llvm::StringRef relative(name);
        bool within = relative.consume_front(of.project + "/");
        if (!within) {
            complain(name + " is not in the project \"" + of.project +
                     "\", so that it has no place in --out");
            return false;
        }
        where = rewrite::real_path(of.out) + "/" + relative.str();
    }
    to.push_back(
        {where, parsed == changes.parsed.end() ? (*now)->getBuffer().str() : changes.apply(name)});
    return true;
}

/* The file, or else its folder, can be written. */
bool is_writable(const std::string &name)
{
    std::string folder = path::parent_path(name).str();
    bool can = fs::exists(name) ? access(name.c_str(), W_OK) == 0 : true;
    return can && access(folder.c_str(), W_OK) == 0;
}

/* Write a file beside the old one and rename it, so that nobody sees a part of it. */
bool write(const output &file)
{
    llvm::SmallString<256> real;
    std::string name = fs::real_path(file.path, real) ? file.path : real.str().str();
    auto temporary = fs::TempFile::create(name + ".%%%%%%", fs::all_read | fs::owner_write);
    if (!temporary) {
        complain(name + ": " + llvm::toString(temporary.takeError()));
        return false;
    }
    llvm::raw_fd_ostream stream(temporary->FD, false);
    stream << file.text;
    stream.flush();
    fs::file_status old;
    if (!fs::status(name, old)) {
        fs::setPermissions(temporary->FD, old.permissions());
    }
    if (stream.has_error()) {
        complain(name + ": " + stream.error().message());
        stream.clear_error();
        llvm::consumeError(temporary->discard());
        return false;
    }
    if (llvm::Error error = temporary->keep(name)) {
        complain(name + ": " + llvm::toString(std::move(error)));
        return false;
    }
    return true;
}

int write_all(const request &of, const rewrite::change_set &changes)
{
    std::set<std::string> wanted;
    for (const auto &[name, text] : changes.parsed) {
        wanted.insert(name);
    }
    for (const std::string &name : of.files) {
        if (!of.out.empty()) {
            wanted.insert(rewrite::real_path(name));
        }
    }
    std::vector<output> outputs;
    for (const std::string &name : wanted) {
        if (!make_output(of, name, changes, outputs)) {
            return FAILED;
        }
    }
    for (const output &file : outputs) {
        fs::create_directories(path::parent_path(file.path));
        if (!is_writable(file.path)) {
            return complain(file.path + " cannot be written; nothing is written");
        }
    }
    for (const output &file : outputs) {
        if (!write(file)) {
            return FAILED;
        }
    }
    return 0;
}

/* The compiler's flags: those after --, or of a file compile_commands.json. */
std::unique_ptr<tooling::CompilationDatabase> find_flags(const request &of,
                                                         const std::vector<std::string> *flags)
{
    std::string error;
    if (flags) {
        return std::make_unique<tooling::FixedCompilationDatabase>(".", *flags);
    }
    auto found = of.build.empty()
                     ? tooling::CompilationDatabase::autoDetectFromSource(of.files[0], error)
                     : tooling::CompilationDatabase::loadFromDirectory(of.build, error);
    if (!found) {
        complain(error + "give the compiler's flags after --, which may be none");
    }
    return found;
}

/* Parse the files. False if one has errors, which Clang has printed. */
bool parse_files(const request &of, const tooling::CompilationDatabase &flags,
                 std::vector<std::unique_ptr<ASTUnit>> &files)
{
    for (const std::string &name : of.files) {
        tooling::ClangTool tool(flags, {name}); /* one for all would print its progress */
        size_t before = files.size();
        bool failed = tool.buildASTs(files) != 0 || files.size() == before;
        if (failed || files.back()->getDiagnostics().hasErrorOccurred()) {
            complain(name + " cannot be parsed; nothing is written");
            return false;
        }
    }
    return true;
}

/* The decisions for all calls that allocate. */
void analyse(const request &of, const std::vector<ASTContext *> &files, rewrite::program &all)
{
    for (ASTContext *file : files) {
        all.add(*file);
    }
    if (of.ports) { /* the functions of gpualloc/gpu_mpi.cuh that take the argument */
        for (const char *name : {"MPI_Allreduce", "MPI_Bcast", "MPI_Reduce"}) {
            all.library(name);
        }
    }
    all.analyse();
    for (rewrite::decision &d : all.decisions) {
        d.gets = of.by == rewrite::grade::none ? rewrite::flag::none : d.gets;
    }
}

int report(const request &of, const rewrite::program &all, const rewrite::change_set &changes,
           const std::vector<rewrite::not_ported> &undone)
{
    if (of.as == format::text) {
        rewrite::print_text(llvm::outs(), all, changes.left, undone);
    } else if (of.as == format::json) {
        rewrite::print_json(llvm::outs(), all, changes, undone);
    } else {
        rewrite::print_fixits(llvm::outs(), changes.changes);
    }
    llvm::outs().flush();
    if (llvm::outs().has_error()) {
        std::string error = llvm::outs().error().message();
        llvm::outs().clear_error();
        return complain("standard output: " + error);
    }
    return 0;
}

int run(const request &of, const tooling::CompilationDatabase &flags)
{
    rewrite::program all(of.cuda, of.by, of.project + "/");
    std::vector<std::unique_ptr<ASTUnit>> files;
    if (!of.library.empty() && !read_library(of.library, all)) {
        return USAGE;
    }
    if (!parse_files(of, flags, files)) {
        return FAILED;
    }
    std::vector<ASTContext *> contexts;
    for (const auto &file : files) {
        contexts.push_back(&file->getASTContext());
    }
    analyse(of, contexts, all);
    rewrite::collector found;
    rewrite::add_changes(found, all, of.ports);
    std::vector<rewrite::not_ported> undone;
    if (of.ports) {
        undone = rewrite::add_port(found, all, contexts);
    }
    rewrite::change_set changes = {{found.changes.begin(), found.changes.end()},
                                   std::move(found.parsed),
                                   std::move(found.left)};
    if (const rewrite::change *two = changes.conflict()) {
        return complain(two->file + ":" + llvm::Twine(two->line) + ":" + llvm::Twine(two->column) +
                        ": two changes exclude each other; nothing is written");
    }
    int status = report(of, all, changes, undone);
    if (status == 0 && (of.in_place || !of.out.empty())) {
        status = write_all(of, changes);
    }
    return status == 0 && !undone.empty() ? INCOMPLETE : status;
}

} // namespace

int main(int argc, char **argv)
{
    std::vector<std::string> flags;
    int own = 1; /* arguments before -- */
    while (own < argc && llvm::StringRef(argv[own]) != "--") {
        own++;
    }
    for (int i = own + 1; i < argc; i++) {
        flags.push_back(argv[i]);
    }
    const argp parser = {options, parse, "FILE... [-- FLAGS]", doc, nullptr, nullptr, nullptr};
    request of;
    argp_program_version_hook = print_version;
    argp_err_exit_status = USAGE;
    if (argp_parse(&parser, own, argv, 0, nullptr, &of)) {
        return USAGE;
    }
    of.project = rewrite::real_path(of.project);
    if (of.project == "/") {
        of.project.clear();
    }
    auto found = find_flags(of, own < argc ? &flags : nullptr);
    return found ? run(of, *found) : USAGE;
}
