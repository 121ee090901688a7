/* SPDX-License-Identifier: MIT */
#include "report.h"

#include <clang/AST/ASTContext.h>
#include <clang/Basic/SourceManager.h>
#include <llvm/ADT/SmallString.h>
#include <llvm/Support/FileSystem.h>
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

/* The causes of the decision that are printed: the reason first and its last origin last. A chain
 * through many functions lacks its middle, or the report would grow with the square of its length.
 */
std::vector<const cause *> causes_of(const decision &d)
{
    constexpr size_t MOST = 32;
    std::vector<const cause *> found;
    for (const cause *why = d.why; why; why = why->origin) {
        bool is_last = found.size() == MOST - 1;
        found.push_back(is_last ? why->root : why);
        if (is_last) {
            break;
        }
    }
    return found;
}

/* Names in all objects are in the order of the alphabet. */
void print_part(llvm::json::OStream &out, const place &at, const std::string &text)
{
    out.object([&] {
        out.attribute("column", at.column);
        out.attribute("file", at.file);
        out.attribute("line", at.line);
        out.attribute("text", text);
    });
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

/* The working directory, with a slash at its end, or "" if it is not known. */
std::string find_folder()
{
    llvm::SmallString<256> folder;
    return llvm::sys::fs::current_path(folder) ? "" : folder.str().str() + "/";
}

/* Files of the working directory by their relative names, for the reader. */
llvm::raw_ostream &operator<<(llvm::raw_ostream &out, const place &at)
{
    static const std::string folder = find_folder();
    llvm::StringRef name(at.file);
    name.consume_front(folder);
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
        const cause *last = nullptr;
        for (const cause *why : causes_of(*d)) {
            before = last && last->origin != why ? ", from ..., from " : before;
            out << before << why->at << " (" << why->text << ')';
            before = ", from ";
            last = why;
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

static void print_allocation(llvm::json::OStream &out, const place &at, const decision &d,
                             const std::vector<bool> &reached)
{
    const char *argument = text_of(d.gets);
    out.attribute("argument", argument ? llvm::json::Value(argument) : llvm::json::Value(nullptr));
    out.attribute("call", name_of(d));
    out.attributeArray("causes", [&] {
        for (const cause *why : causes_of(d)) {
            print_part(out, why->at, why->text);
        }
    });
    out.attribute("column", at.column);
    out.attribute("file", at.file);
    out.attribute("function", d.in->definition->getNameAsString());
    out.attribute("line", at.line);
    out.attribute("reached", argument && reached[d.in->number]);
    out.attribute("verdict", text_of(d.what));
}

static void print_changes(llvm::json::OStream &out, const std::vector<change> &changes)
{
    for (const change &c : changes) {
        out.object([&] {
            out.attribute("file", c.file);
            out.attribute("length", c.length);
            out.attribute("offset", c.offset);
            out.attribute("text", c.text);
        });
    }
}

void print_json(llvm::raw_ostream &to, const program &all, const change_set &changes,
                const std::vector<not_ported> &undone)
{
    llvm::json::OStream out(to, 2);
    std::vector<bool> reached = all.find_reached(false);
    out.object([&] {
        out.attributeArray("allocations", [&] {
            for (const auto &found : sorted(all)) {
                out.object([&] { print_allocation(out, found.first, *found.second, reached); });
            }
        });
        out.attributeArray("changes", [&] { print_changes(out, changes.changes); });
        out.attributeArray("not_edited", [&] {
            for (const auto &part : changes.left) {
                print_part(out, part.first, part.second);
            }
        });
        out.attributeArray("not_ported", [&] {
            for (const not_ported &part : undone) {
                print_part(out, part.at, part.what);
            }
        });
    });
    out.flush();
    to << '\n';
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
