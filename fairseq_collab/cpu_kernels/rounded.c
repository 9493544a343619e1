/* Attention of a decoding step over a rounded cache: see rounded.py and attention/rounding.py.

   head_i = softmax(q_i k_g(i)^T + mask) v_g(i), for each sentence, over blocks of slots:
       keys of a block are unpacked (they stay in the processor's cache), then scored by all rows;
       the softmax is online (Milakov, Gimelshein 2018, arXiv 1805.02867): sums of earlier blocks
       shrink when a greater score is found; values of the block are unpacked and added.
   A slot that the mask hides from all queries is left out, unless it is not finite: NaN times 0
   is NaN, with torch's operators, too.

   Sizes:  sentences B, heads H, queries Q (beams), slots S, rows R = H Q; a row is a head's query.
*/
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))
#define BLOCK 32 /* slots */
#define AHEAD 4 /* rows of packed numbers that are fetched early */
#define TILE 4 /* slots, or vectors of columns, whose sums stay in registers */

/* Lanes of a vector; rows whose sums stay in registers; numbers of lanes, alike in each four. */
#define FOUR(i, a, b, c, d) (a) + (i), (b) + (i), (c) + (i), (d) + (i)
#if defined(__AVX512F__)
enum { LANES = 16, ROWS = 4 };
#define EACH_FOUR(...) \
    {FOUR(0, __VA_ARGS__), FOUR(4, __VA_ARGS__), FOUR(8, __VA_ARGS__), FOUR(12, __VA_ARGS__)}
#elif defined(__AVX2__)
enum { LANES = 8, ROWS = 2 };
#define EACH_FOUR(...) {FOUR(0, __VA_ARGS__), FOUR(4, __VA_ARGS__)}
#else
enum { LANES = 4, ROWS = 2 };
#define EACH_FOUR(...) {FOUR(0, __VA_ARGS__)}
#endif

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
typedef vec loose __attribute__((aligned(4), may_alias)); /* a vec at any address of a float */
typedef float four __attribute__((vector_size(16)));
typedef int32_t four_ints __attribute__((vector_size(16)));

/* Packed keys or values: (B, S, row bytes), read as groups of a token's numbers. */
struct packed {
    const uint8_t *data;
    int64_t sentence, slot;       /* strides, in bytes */
    int64_t heads, size;          /* G heads of this size: width = G size */
    int64_t groups, group;        /* with one scale and offset each; numbers in a group */
};

struct step {
    struct packed keys, values;
    int64_t one;                  /* keys are values, too */
    int64_t bits;                 /* 8 or 4 */
    int64_t sentences, heads, queries, slots;
    const float *query;           /* (B, H, Q, e) */
    const float *mask;            /* (B, Q, S) by strides; -inf hides, else added; may be NULL */
    int64_t mask_sentence, mask_query, mask_slot;
    int64_t mask_replaces;        /* a hidden score is -inf whatever it was */
    int64_t parts;                /* of a sentence's slots; computed apart */
    float *output;                /* (B, parts, R, h_v): weighted sums; with one part, divided */
    float *greatest, *total;      /* (B, parts, R): greatest score; sum of exp(score - greatest) */
    float *scores;                /* (B, R, S), -inf at first; may be NULL */
    int64_t next;                 /* part that is computed next, of any sentence; starts at 0 */
    int64_t failed;               /* out of memory */
};

struct work {                     /* of a thread */
    float *keys, *values;         /* (BLOCK, width) */
    float *scores;                /* (R, BLOCK) */
    float *mask;                  /* (Q, BLOCK) */
    float *shrink;                /* (R) */
};

INLINE vec load(const float *from) { return *(const loose *)from; }
INLINE void store(float *to, vec x) { *(loose *)to = x; }

INLINE four folded(vec x) {
    four parts[LANES / 4], total;
    memcpy(parts, &x, sizeof x);
    total = parts[0];
#pragma GCC unroll 4
    for (int i = 1; i < LANES / 4; i++) total += parts[i];
    return total;
}

/* The sums of four vectors a, b, c, d: in each four lanes first, then over these. */
INLINE four sums_of(const vec *x) {
    const ints first = EACH_FOUR(0, LANES, 1, LANES + 1);
    const ints second = EACH_FOUR(2, LANES + 2, 3, LANES + 3);
    vec ab = __builtin_shuffle(x[0], x[1], first) + __builtin_shuffle(x[0], x[1], second);
    vec cd = __builtin_shuffle(x[2], x[3], first) + __builtin_shuffle(x[2], x[3], second);
    vec abcd = __builtin_shuffle(ab, cd, (ints)EACH_FOUR(0, 1, LANES, LANES + 1));
    return folded(abcd + __builtin_shuffle(ab, cd, (ints)EACH_FOUR(2, 3, LANES + 2, LANES + 3)));
}

/* ---- numbers of a token ---------------------------------------------------------------------- */

/* Of LANES numbers in float16: the exponent's offset is 15 in it, 127 in float32. */
INLINE vec from_halves(const uint16_t *from) {
#if defined(__AVX512F__)
    return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
#elif defined(__AVX2__)
    return (vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
#else
    ints half, word;
    for (int i = 0; i < LANES; i++) half[i] = from[i];
    word = (ints)((vec)((half & 0x7fff) << 13) * 0x1p112f);
    word |= ((half & 0x7c00) == 0x7c00) & 0x7f800000; /* NaN and infinity stay */
    return (vec)(word | (half & 0x8000) << 16);
#endif
}

/* Of LANES bytes. */
INLINE vec from_bytes(const uint8_t *from) {
#if defined(__AVX512F__)
    return (vec)_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)from)));
#elif defined(__AVX2__)
    return (vec)_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)from)));
#else
    vec x;
    for (int i = 0; i < LANES; i++) x[i] = (float)from[i];
    return x;
#endif
}

INLINE float from_half(const uint8_t *from) {
    uint16_t half[LANES] = {0};
    memcpy(half, from, sizeof *half);
#if defined(__AVX2__)
    return _cvtsh_ss(half[0]);
#else
    return from_halves(half)[0];
#endif
}

/* LANES numbers of a token from number i on, all in one half of its bytes if they have 4 bits. */
INLINE vec from_codes(const uint8_t *codes, int64_t i, int64_t half, int64_t bits) {
    uint8_t apart[LANES];
    if (bits == 8) return from_bytes(codes + i);
    memcpy(apart, codes + (i < half ? i : i - half), sizeof apart);
    if (i < half)
        for (int j = 0; j < LANES; j++) apart[j] &= 15;
    else
        for (int j = 0; j < LANES; j++) apart[j] >>= 4;
    return from_bytes(apart);
}

INLINE float from_code(const uint8_t *codes, int64_t i, int64_t half, int64_t bits) {
    if (bits == 8) return (float)codes[i];
    return (float)(i < half ? codes[i] & 15 : codes[i - half] >> 4);
}

INLINE int is_finite(const struct packed *p, const uint8_t *row) {
    int bad = 0;
    for (int64_t i = 0; i < 2 * p->groups; i++) {
        uint16_t half;
        memcpy(&half, row + 2 * i, sizeof half);
        bad |= (half & 0x7c00) == 0x7c00;
    }
    return !bad;
}

INLINE void unpack(
    const struct packed *p, const int64_t bits, const uint8_t *row, float *restrict out
) {
    int64_t width = p->heads * p->size, half = (width + 1) / 2, groups = p->groups;
    const uint8_t *codes = row + 4 * groups;
    int64_t step = bits == 8 || (half % LANES == 0 && p->group % LANES == 0) ? LANES : width + 1;
    for (int64_t g = 0; g < groups; g++) {
        int64_t i = g * p->group, end = i + p->group < width ? i + p->group : width;
        float scale = from_half(row + 4 * g), offset = from_half(row + 4 * g + 2);
        for (; i + step <= end; i += LANES)
            store(out + i, from_codes(codes, i, half, bits) * scale + offset);
        for (; i < end; i++) out[i] = from_code(codes, i, half, bits) * scale + offset;
    }
}

/* ---- products -------------------------------------------------------------------------------- */

/* scores (rows, slots) = q (rows, size) k (slots, size)^T; at most 4 rows and slots. */
INLINE void score_tile(
    const float *q, const float *k, int64_t width, int64_t size, float *scores, const int rows
) {
    vec sums[ROWS][TILE] = {0};
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES)
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int t = 0; t < TILE; t++)
                sums[r][t] += load(q + r * size + i) * load(k + t * width + i);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        four found = sums_of(sums[r]);
        memcpy(scores + r * BLOCK, &found, sizeof found);
        for (int t = 0; t < TILE; t++)
            for (int64_t j = i; j < size; j++)
                scores[r * BLOCK + t] += q[r * size + j] * k[t * width + j];
    }
}

/* output (rows, h_v) = shrink output + weights (rows, slots) v (slots, h_v), from column i on. */
INLINE void value_tile(
    const float *weights, const float *shrink, const float *v, int64_t width, int64_t size,
    int slots, float *output, int rows, int columns
) {
    vec sums[ROWS][TILE];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++)
            sums[r][c] = load(output + r * size + c * LANES) * shrink[r];
    for (int t = 0; t < slots; t++)
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int c = 0; c < columns; c++)
                sums[r][c] += weights[r * BLOCK + t] * load(v + t * width + c * LANES);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int c = 0; c < columns; c++) store(output + r * size + c * LANES, sums[r][c]);
}

INLINE void value_rows(
    const float *weights, const float *shrink, const float *v, int64_t width, int64_t size,
    int slots, float *output, const int rows
) {
    int64_t i = 0;
    for (; i + TILE * LANES <= size; i += TILE * LANES)
        value_tile(weights, shrink, v + i, width, size, slots, output + i, rows, TILE);
    for (; i + LANES <= size; i += LANES)
        value_tile(weights, shrink, v + i, width, size, slots, output + i, rows, 1);
    for (int r = 0; r < rows; r++)
        for (int64_t j = i; j < size; j++) {
            float total = output[r * size + j] * shrink[r];
            for (int t = 0; t < slots; t++) total += weights[r * BLOCK + t] * v[t * width + j];
            output[r * size + j] = total;
        }
}

/* ---- softmax --------------------------------------------------------------------------------- */

INLINE vec either(ints which, vec x, vec y) { return (vec)((which & (ints)x) | (~which & (ints)y)); }

/* exp(x) for x <= 0, with a relative error of 2^-23; 0 below -87; NaN stays. */
INLINE vec exp_(vec x) {
    const vec none = {0};
    ints far = x < none - 87.0f;
    vec safe = either(far, none, x);
    ints n = __builtin_convertvector(safe * 1.44269504f - 0.5f, ints); /* nearest, as safe <= 0 */
    vec whole = __builtin_convertvector(n, vec);
    vec f = safe - whole * 0.693359375f + whole * 2.12194440e-4f;
    vec p = f * 1.9875691500e-4f + 1.3981999507e-3f; /* Cephes, expf.c */
    p = p * f + 8.3334519073e-3f;
    p = p * f + 4.1665795894e-2f;
    p = p * f + 1.6666665459e-1f;
    p = p * f + 5.0000001201e-1f;
    p = p * f * f + f + 1.0f;
    return either(far, none, p * (vec)((n + 127) << 23));
}

/* The greatest lane; NaN is left out, as x > NaN is false. */
INLINE float greatest_of(vec x) {
    four parts[LANES / 4], top;
    memcpy(parts, &x, sizeof x);
    top = parts[0];
#pragma GCC unroll 4
    for (int i = 1; i < LANES / 4; i++) {
        four_ints above = parts[i] > top;
        top = (four)((above & (four_ints)parts[i]) | (~above & (four_ints)top));
    }
    float a = top[0] > top[1] ? top[0] : top[1], b = top[2] > top[3] ? top[2] : top[3];
    return a > b ? a : b;
}

/* Scores (BLOCK) of a row become weights; returns by what earlier sums shrink. */
INLINE float weigh(float *scores, float *greatest, float *total) {
    const vec none = {0};
    vec tops = none + *greatest, sums = none;
    for (int t = 0; t < BLOCK; t += LANES) {
        vec x = load(scores + t);
        tops = either(x > tops, x, tops);
    }
    float top = greatest_of(tops), shift = top == -INFINITY ? 0.0f : top;
    for (int t = 0; t < BLOCK; t += LANES) {
        vec weights = exp_(load(scores + t) - shift);
        store(scores + t, weights);
        sums += weights;
    }
    four parts = folded(sums);
    float shrink = *greatest == top ? 1.0f : exp_(none + (*greatest - shift))[0];
    *total = *total * shrink + (parts[0] + parts[1] + parts[2] + parts[3]);
    *greatest = top;
    return shrink;
}

/* ---- a block of slots ------------------------------------------------------------------------ */

struct block {
    int slots;
    int64_t number[BLOCK];                      /* of each slot */
    const uint8_t *keys[BLOCK], *values[BLOCK]; /* its packed numbers */
};

INLINE void unpack_block(
    const struct packed *p, const int64_t bits, const uint8_t **rows, int slots, float *out
) {
    int64_t width = p->heads * p->size, bytes = 4 * p->groups + (width * bits + 7) / 8;
    for (int t = 0; t < slots; t++, out += width) {
        if (t + AHEAD < slots) /* rows between which slots are left out are not foreseen */
            for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(rows[t + AHEAD] + i);
        unpack(p, bits, rows[t], out);
    }
}

static void unpack_all(
    const struct step *s, const struct packed *p, const uint8_t **rows, int slots, float *out
) {
    if (s->bits == 8) unpack_block(p, 8, rows, slots, out);
    else unpack_block(p, 4, rows, slots, out);
}

/* Scores of the rows that share a head of keys. */
static void score_rows(
    const float *q, const float *k, int64_t width, int64_t size, float *scores, int64_t rows,
    int slots
) {
    for (; rows >= ROWS; rows -= ROWS, q += ROWS * size, scores += ROWS * BLOCK)
        for (int t = 0; t < slots; t += TILE)
            score_tile(q, k + t * width, width, size, scores + t, ROWS);
    for (; rows > 0; rows--, q += size, scores += BLOCK)
        for (int t = 0; t < slots; t += TILE)
            score_tile(q, k + t * width, width, size, scores + t, 1);
}

static void mask_scores(const struct step *s, const float *mask, float *scores, int slots) {
    const vec none = {0};
    for (int t = 0; t < slots && s->mask; t += LANES) {
        vec x = load(scores + t), added = load(mask + t);
        ints replaced = (added == none - INFINITY) & -(int32_t)s->mask_replaces;
        store(scores + t, either(replaced, added, x + added));
    }
    for (int t = slots; t < BLOCK; t++) scores[t] = -INFINITY;
}

/* Add the values to the rows that share a head of them. */
static void add_values(
    const float *weights, const float *shrink, const float *v, int64_t width, int64_t size,
    int slots, float *output, int64_t rows
) {
    for (; rows >= ROWS; rows -= ROWS) {
        value_rows(weights, shrink, v, width, size, slots, output, ROWS);
        weights += ROWS * BLOCK, shrink += ROWS, output += ROWS * size;
    }
    for (; rows > 0; rows--) {
        value_rows(weights, shrink, v, width, size, slots, output, 1);
        weights += BLOCK, shrink += 1, output += size;
    }
}

static void add_block(
    const struct step *s, struct work *w, struct block *block, int64_t b, float *output,
    float *greatest, float *total
) {
    int slots = block->slots;
    int64_t rows = s->heads * s->queries, e = s->keys.size, size = s->values.size;
    int64_t shared = rows / s->keys.heads;
    const float *query = s->query + b * rows * e;
    unpack_all(s, &s->keys, block->keys, slots, w->keys);
    for (int64_t g = 0, r = 0; g < s->keys.heads; g++, r += shared)
        score_rows(
            query + r * e, w->keys + g * e, s->keys.heads * e, e, w->scores + r * BLOCK, shared,
            slots
        );
    for (int64_t r = 0; r < rows; r++) {
        float *scores = w->scores + r * BLOCK;
        mask_scores(s, w->mask + r % s->queries * BLOCK, scores, slots);
        for (int t = 0; t < slots && s->scores; t++)
            s->scores[(b * rows + r) * s->slots + block->number[t]] = scores[t];
        w->shrink[r] = weigh(scores, greatest + r, total + r);
    }
    const float *values = s->one ? w->keys : w->values;
    if (!s->one) unpack_all(s, &s->values, block->values, slots, w->values);
    shared = rows / s->values.heads;
    for (int64_t g = 0, r = 0; g < s->values.heads; g++, r += shared)
        add_values(
            w->scores + r * BLOCK, w->shrink + r, values + g * size, s->values.heads * size, size,
            slots, output + r * size, shared
        );
    block->slots = 0;
}

/* ---- a part of a sentence's slots ------------------------------------------------------------ */

/* Add a slot to the block; return whether it is full. */
static int add_slot(
    const struct step *s, struct work *w, struct block *block, int64_t b, int64_t slot
) {
    const uint8_t *k = s->keys.data + b * s->keys.sentence + slot * s->keys.slot;
    const uint8_t *v = s->values.data + b * s->values.sentence + slot * s->values.slot;
    if (s->mask) {
        const float *mask = s->mask + b * s->mask_sentence + slot * s->mask_slot;
        int seen = 0;
        for (int64_t q = 0; q < s->queries; q++) {
            float added = mask[q * s->mask_query];
            w->mask[q * BLOCK + block->slots] = added;
            seen |= added != -INFINITY;
        }
        if (!seen && is_finite(&s->keys, k) && is_finite(&s->values, v)) return 0;
    }
    block->number[block->slots] = slot;
    block->keys[block->slots] = k;
    block->values[block->slots] = v;
    return ++block->slots == BLOCK;
}

static void add_part(const struct step *s, struct work *w, int64_t unit) {
    int64_t b = unit / s->parts, part = unit % s->parts, rows = s->heads * s->queries;
    int64_t size = s->values.size, end = s->slots * (part + 1) / s->parts;
    float *output = s->output + unit * rows * size;
    float *greatest = s->greatest + unit * rows, *total = s->total + unit * rows;
    memset(output, 0, rows * size * sizeof(float));
    for (int64_t r = 0; r < rows; r++) greatest[r] = -INFINITY, total[r] = 0;
    struct block block = {0};
    for (int64_t slot = s->slots * part / s->parts; slot < end; slot++)
        if (add_slot(s, w, &block, b, slot))
            add_block(s, w, &block, b, output, greatest, total);
    if (block.slots) add_block(s, w, &block, b, output, greatest, total);
    for (int64_t r = 0; r < rows && s->parts == 1; r++) {
        float factor = 1.0f / total[r];
        for (int64_t i = 0; i < size; i++) output[r * size + i] *= factor;
    }
}

/* ---- the entry point ------------------------------------------------------------------------- */

static void *taken(char **memory, int64_t numbers) {
    void *start = *memory;
    *memory += (numbers * sizeof(float) + 63) / 64 * 64;
    return start;
}

/* Compute parts until none is left; threads share a step. */
void attend(struct step *s) {
    int64_t rows = s->heads * s->queries, keys = s->keys.heads * s->keys.size;
    int64_t values = s->values.heads * s->values.size;
    int64_t all = BLOCK * (keys + values + rows + s->queries) + rows;
    char *memory = malloc(all * sizeof(float) + 6 * 64), *left = memory;
    if (!memory) {
        __atomic_store_n(&s->failed, 1, __ATOMIC_RELAXED);
        return;
    }
    left += -(uintptr_t)left % 64;
    struct work w;
    w.keys = taken(&left, BLOCK * keys);
    w.values = taken(&left, BLOCK * values);
    w.scores = taken(&left, BLOCK * rows);
    w.mask = taken(&left, BLOCK * s->queries);
    w.shrink = taken(&left, rows);
    int64_t unit;
    while ((unit = __atomic_fetch_add(&s->next, 1, __ATOMIC_RELAXED)) < s->sentences * s->parts)
        add_part(s, &w, unit);
    free(memory);
}
