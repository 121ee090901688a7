/* SPDX-License-Identifier: MIT */
#include "report.h"

#include <clang/AST/ASTContext.h>
#include <clang/Basic/SourceManager.h>
#include <llvm/ADT/SmallString.h>
#include <llvm/Support/FileSystem.h>
#include <llvm/Support/FormatVariadic.h>
#include <llvm/Support/JSON.h>

#include <algorithm>

namespace rewrite
{
namespace
{

const char *text_of(verdict what)
{
    static const char *const texts[] = {"uniform and equal", "uniform, sizes differ", "divergent",
                                        "unknown"};
    return texts[(int)what];
}

const char *text_of(flag gets)
{
    static const char *const texts[] = {nullptr, "true", "coalesce"};
    return texts[(int)gets];
}

std::string name_of(const decision &d)
{
    return d.site->allocates ? d.site->allocates->name : "new";
}

place start_of(const decision &d)
{
    const clang::SourceManager &sources = d.in->definition->getASTContext().getSourceManager();
    return place_of(sources, d.site->expression->getBeginLoc());
}

llvm::json::Object object_of(const place &at)
{
    return llvm::json::Object{{"file", at.file}, {"line", at.line}, {"column", at.column}};
}

/* The allocations, in the order of their places. */
std::vector<std::pair<place, const decision *>> sorted(const program &all)
{
    std::vector<std::pair<place, const decision *>> found;
    for (const decision &d : all.decisions) {
        if (!d.site->callee) {
            found.emplace_back(start_of(d), &d);
        }
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const auto &a, const auto &b) { return a.first < b.first; });
    return found;
}

/* Files of the working directory by their relative names, for the reader. */
llvm::raw_ostream &operator<<(llvm::raw_ostream &out, const place &at)
{
    llvm::SmallString<256> folder;
    llvm::StringRef name(at.file);
    if (!llvm::sys::fs::current_path(folder)) {
        folder += '/';
        name.consume_front(folder);
    }
    return out << name << ':' << at.line << ':' << at.column;
}

} // namespace

void print_text(llvm::raw_ostream &out, const program &all, const left_out &left,
                const std::vector<not_ported> &undone)
{
    for (const auto &[at, d] : sorted(all)) {
        out << at << ": " << name_of(*d) << " in " << d->in->definition->getNameAsString()
            << "(): " << text_of(d->what);
        if (d->gets != flag::none) {
            out << ": " << text_of(d->gets);
        } else if (d->what == verdict::together) {
            out << ", but it stays as it is";
        }
        const char *before = " because of ";
        for (const cause *why = d->why; why; why = why->origin) {
            out << before << why->at << " (" << why->text << ')';
            before = ", from ";
        }
        out << '\n';
    }
    for (const auto &[at, what] : left) {
        out << at << ": cannot be edited: " << what << '\n';
    }
    for (const not_ported &part : undone) {
        out << part.at << ": not ported: " << part.what << '\n';
    }
}

void print_json(llvm::raw_ostream &out, const program &all, const change_set &changes,
                const std::vector<not_ported> &undone)
{
    llvm::json::Array allocations, texts, left, parts;
    std::vector<bool> reached = all.find_reached(false);
    for (const auto &[at, d] : sorted(all)) {
        llvm::json::Array causes;
        for (const cause *why = d->why; why; why = why->origin) {
            llvm::json::Object object = object_of(why->at);
            object["text"] = why->text;
            causes.push_back(std::move(object));
        }
        llvm::json::Object object = object_of(at);
        object["function"] = d->in->definition->getNameAsString();
        object["call"] = name_of(*d);
        object["verdict"] = text_of(d->what);
        const char *argument = text_of(d->gets);
        object["argument"] = argument ? llvm::json::Value(argument) : llvm::json::Value(nullptr);
        object["reached"] = argument && reached[d->in->number];
        object["causes"] = std::move(causes);
        allocations.push_back(std::move(object));
    }
    for (const change &c : changes.changes) {
        texts.push_back(llvm::json::Object{
            {"file", c.file}, {"offset", c.offset}, {"length", c.length}, {"text", c.text}});
    }
    for (const auto &[at, what] : changes.left) {
        llvm::json::Object object = object_of(at);
        object["text"] = what;
        left.push_back(std::move(object));
    }
    for (const not_ported &part : undone) {
        llvm::json::Object object = object_of(part.at);
        object["text"] = part.what;
        parts.push_back(std::move(object));
    }
    llvm::json::Value whole = llvm::json::Object{{"allocations", std::move(allocations)},
                                                 {"changes", std::move(texts)},
                                                 {"not_edited", std::move(left)},
                                                 {"not_ported", std::move(parts)}};
    out << llvm::formatv("{0:2}\n", whole);
}

void print_fixits(llvm::raw_ostream &out, const std::vector<change> &changes)
{
    for (const change &c : changes) {
        out << "fix-it:\"";
        out.write_escaped(c.file) << "\":{" << c.line << ':' << c.column << '-' << c.line << ':'
                                  << c.column + c.length << "}:\"";
        out.write_escaped(c.text) << "\"\n";
    }
}

} // namespace rewrite
