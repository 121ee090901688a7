/* SPDX-License-Identifier: MIT
 *
 * A program that knows nothing of gpualloc: it counts the words of its standard input and prints
 * those that occur most, in any C, with malloc, realloc, strdup and free. Linking the archive is
 * all it takes; README.md has the line.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct word {
    char *text;
    size_t count;
} word;

typedef struct list {
    word *words;
    size_t count, room;
} list;

static void *need(void *block)
{
    if (!block) {
        perror("words");
        exit(1);
    }
    return block;
}

static void add(list *l, const char *text)
{
    for (size_t i = 0; i < l->count; i++) {
        if (strcmp(l->words[i].text, text) == 0) {
            l->words[i].count++;
            return;
        }
    }
    if (l->count == l->room) {
        l->room = 2 * l->room + 8;
        l->words = need(realloc(l->words, l->room * sizeof *l->words));
    }
    l->words[l->count++] = (word){need(strdup(text)), 1};
}

static void read_words(list *l, FILE *file)
{
    char text[64];
    size_t length = 0;
    for (int c = 0; c != EOF;) {
        c = getc(file);
        if (isalpha(c) && length + 1 < sizeof text) {
            text[length++] = (char)tolower(c);
        } else if (length) {
            text[length] = '\0';
            add(l, text);
            length = 0;
        }
    }
}

static int by_count(const void *a, const void *b)
{
    const word *left = a;
    const word *right = b;
    if (left->count != right->count) {
        return left->count < right->count ? 1 : -1;
    }
    return strcmp(left->text, right->text);
}

int main(void)
{
    list l = {0};
    read_words(&l, stdin);
    if (l.count) {
        qsort(l.words, l.count, sizeof *l.words, by_count);
    }
    for (size_t i = 0; i < l.count && i < 10; i++) {
        printf("%6zu %s\n", l.words[i].count, l.words[i].text);
    }
    for (size_t i = 0; i < l.count; i++) {
        free(l.words[i].text);
    }
    free(l.words);
    return 0;
}
