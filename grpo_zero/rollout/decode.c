/* One decoding step on a CPU: every running completion's next logits, through all layers, in float32.

   The fast twin of model/decoder.py with rollout/cache.py, which judge it. At the 8 to 64 rows of decoding PyTorch's products are far
   from a processor's speed, and its small operations take most of the rest. Here activations stand by feature, [features][rows]: a
   weight is one number for all rows, read once, where it lies, and everything elementwise runs along the rows. Each number is a
   sum in a fixed order, so what a row computes depends neither on the other rows nor on the threads.

   Rows stand in blocks of 32, the last one 8, 16 or 32 wide; places behind the last row compute on zeros and are not read.
   Letters as in types.py: L layers, S slots, H query heads, K key/value heads, D head size, E width, F feed-forward width, V ids. */

#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>

/* A vector of the processor, and how many outputs one tile sums: their sums and what they are made of fit the registers. */
typedef float Lanes8 __attribute__((vector_size(32), aligned(4)));
#ifdef __AVX512F__
typedef float Lanes __attribute__((vector_size(64), aligned(4)));
enum { OUTS = 8 };
#else
typedef Lanes8 Lanes;
enum { OUTS = 6 };
#endif

enum { BLOCK = 32, CHUNK = 4 * OUTS, COLUMNS = 32, LANES = sizeof(Lanes) / sizeof(float) };

struct layer {
    const float *attention_norm_E, *qkv, *qkv_bias, *q_norm_D, *k_norm_D, *output, *output_bias;
    const float *mlp_norm_E, *gate_up, *gate_up_bias, *down, *down_bias; /* matrices [out][in]; NULL where a model has none */
};

struct model {
    int64_t num_layers, width, ffn_width, num_heads, num_kv_heads, head_size, vocab_size;
    double norm_eps;
    const float *embedding_VE, *norm_E, *head_VE;
    const struct layer *layers_L;
};

struct prompt {
    int64_t length, room; /* tokens; room: length rounded up to COLUMNS */
    const float *keys;    /* [L][K][D][room] */
    const float *values;  /* [L][K][room][D rounded up to COLUMNS] */
};

struct cache {
    int64_t num_slots, room; /* room: tokens a slot can come to hold, rounded up to COLUMNS */
    float *keys;             /* [L][S][K][D][room] */
    float *values;           /* [L][S][K][room][D rounded up to COLUMNS] */
};

struct step {
    int64_t num_rows;                    /* running slots, the first ones */
    const int64_t *tokens_S, *lengths_S; /* the token to feed, and how many own tokens the cache holds before it */
    const struct prompt *const *prompts_S;
    const float *cos_SD, *sin_SD; /* of the rotary embedding at each row's position; halves repeat */
    float *logits_SV; /* rows `logits_row` apart */
    int64_t logits_row;
    float *scratch; /* scratch_floats(...) of them */
    int64_t longest_prompt_room, num_threads;
};

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t rounded_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
static inline int64_t num_blocks(int64_t rows) { return (rows + BLOCK - 1) / BLOCK; }
static inline int64_t block_width(int64_t rows, int64_t block) {
    int64_t left = rows - block * BLOCK;
    return left <= 8 ? 8 : left <= 16 ? 16 : BLOCK;
}

/* e^x: 2^n times the Taylor series of e^r to r^7, |r| <= ln(2)/2, whose rest is below 6e-9; n ln(2) in two parts (Cody & Waite). */
static inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x; /* where 2^n is a normal number; NaN stays */
    float n = rintf(x * 1.44269504f);
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float sum = 1.0f / 5040;
    sum = sum * r + 1.0f / 720;
    sum = sum * r + 1.0f / 120;
    sum = sum * r + 1.0f / 24;
    sum = sum * r + 1.0f / 6;
    sum = sum * r + 0.5f;
    sum = sum * r + 1.0f;
    sum = sum * r + 1.0f;
    int32_t bits = ((int32_t)n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return sum * power;
}

/* out[o][j] = bias[o] + sum_i a[o][i] x[i][j] for NUM_OUTS o and NUM_VECTORS vectors of j, added to what is there if `add`.
   `num_outs`: how many of them there are. `ahead`: ask for the rows of `a` behind these, which come next. */
#define TILE(NAME, VECTOR, NUM_OUTS, NUM_VECTORS)                                                                              \
    static inline void NAME(const float *a, int64_t a_row, int64_t num_outs, int64_t num_in, const float *x, int64_t x_row,    \
                            float *out, int64_t out_row, const float *bias, int add, int ahead) {                              \
        enum { WIDTH = sizeof(VECTOR) / sizeof(float) };                                                                       \
        VECTOR sums[NUM_OUTS][NUM_VECTORS] = {0};                                                                              \
        const float *rows[NUM_OUTS];                                                                                           \
        for (int o = 0; o < NUM_OUTS; o++) rows[o] = a + least(o, num_outs - 1) * a_row;                                       \
        for (int64_t start = 0; start < num_in; start += 16) {                                                                 \
            if (ahead)                                                                                                         \
                for (int o = 0; o < NUM_OUTS; o++) __builtin_prefetch(rows[o] + NUM_OUTS * a_row + start, 0, 2);               \
            for (int64_t i = start; i < least(start + 16, num_in); i++) {                                                      \
                VECTOR columns[NUM_VECTORS];                                                                                   \
                _Pragma("GCC unroll 2") for (int j = 0; j < NUM_VECTORS; j++)                                                  \
                    columns[j] = *(const VECTOR *)(x + i * x_row + j * WIDTH);                                                 \
                _Pragma("GCC unroll 8") for (int o = 0; o < NUM_OUTS; o++) {                                                   \
                    float weight = rows[o][i];                                                                                 \
                    _Pragma("GCC unroll 2") for (int j = 0; j < NUM_VECTORS; j++) sums[o][j] += columns[j] * weight;           \
                }                                                                                                              \
            }                                                                                                                  \
        }                                                                                                                      \
        for (int o = 0; o < num_outs; o++)                                                                                     \
            for (int j = 0; j < NUM_VECTORS; j++) {                                                                            \
                VECTOR *place = (VECTOR *)(out + o * out_row + j * WIDTH);                                                     \
                VECTOR sum = bias ? sums[o][j] + bias[o] : sums[o][j];                                                         \
                *place = add ? *place + sum : sum;                                                                             \
            }                                                                                                                  \
    }

TILE(tile_narrow, Lanes8, OUTS, 1)
TILE(tile_single, Lanes, OUTS, 1)
TILE(tile_double, Lanes, OUTS, 2)
TILE(tile_1_head, Lanes, 1, 2)
TILE(tile_2_heads, Lanes, 2, 2)
TILE(tile_3_heads, Lanes, 3, 2)
TILE(tile_4_heads, Lanes, 4, 2)

/* `num_outs` features of one block: out[o] = W[o] x + bias[o], [num_outs][width]. */
static void multiply(const float *weight, const float *bias, int64_t num_outs, int64_t num_in, const float *x, int64_t width,
                     float *out, int add, int ahead) {
    for (int64_t o = 0; o < num_outs; o += OUTS) {
        const float *a = weight + o * num_in, *b = bias ? bias + o : NULL;
        int64_t n = least(OUTS, num_outs - o);
        float *to = out + o * width;
        if (width == 8)
            tile_narrow(a, num_in, n, num_in, x, width, to, width, b, add, ahead);
        else if (width == LANES)
            tile_single(a, num_in, n, num_in, x, width, to, width, b, add, ahead);
        else
            for (int64_t j = 0; j < width; j += 2 * LANES)
                tile_double(a, num_in, n, num_in, x + j, width, to + j, width, b, add, ahead && j == 0);
    }
}

/* out[h][j] (+)= sum_i a[h][i] m[i][j] for the heads that share a key head; num_columns is a multiple of COLUMNS. */
static void mix(const float *a, int64_t a_row, int64_t num_heads, int64_t num_in, const float *m, int64_t num_columns, int64_t m_row,
                float *out, int64_t out_row, int add) {
    for (int64_t h = 0; h < num_heads; h += 4)
        for (int64_t j = 0; j < num_columns; j += 2 * LANES) {
            const float *from = a + h * a_row, *x = m + j;
            float *to = out + h * out_row + j;
            switch (least(4, num_heads - h)) {
            case 1: tile_1_head(from, a_row, 1, num_in, x, m_row, to, out_row, NULL, add, 0); break;
            case 2: tile_2_heads(from, a_row, 2, num_in, x, m_row, to, out_row, NULL, add, 0); break;
            case 3: tile_3_heads(from, a_row, 3, num_in, x, m_row, to, out_row, NULL, add, 0); break;
            default: tile_4_heads(from, a_row, 4, num_in, x, m_row, to, out_row, NULL, add, 0);
            }
        }
}

/* The functions from here to decode_step are called by all threads of a team and end with all of them done. */

static void product(const float *weight, const float *bias, int64_t num_outs, int64_t num_in, const float *x, int64_t rows,
                    float *out, int add) {
#pragma omp for schedule(guided, 1)
    for (int64_t o = 0; o < num_outs; o += CHUNK)
        for (int64_t block = 0; block < num_blocks(rows); block++) {
            int64_t width = block_width(rows, block), start = block * BLOCK;
            multiply(weight + o * num_in, bias ? bias + o : NULL, least(CHUNK, num_outs - o), num_in, x + start * num_in, width,
                     out + start * num_outs + o * width, add, block == 0);
        }
}

static void logits(const struct model *model, const float *x, const struct step *step) {
    int64_t rows = step->num_rows, num_in = model->width;
#pragma omp for schedule(guided, 1)
    for (int64_t o = 0; o < model->vocab_size; o += CHUNK)
        for (int64_t block = 0; block < num_blocks(rows); block++) {
            int64_t width = block_width(rows, block), start = block * BLOCK, count = least(CHUNK, model->vocab_size - o);
            float part[CHUNK * BLOCK];
            multiply(model->head_VE + o * num_in, NULL, count, num_in, x + start * num_in, width, part, 0, block == 0);
            for (int64_t j = 0; j < least(width, rows - start); j++)
                for (int64_t c = 0; c < count; c++) step->logits_SV[(start + j) * step->logits_row + o + c] = part[c * width + j];
        }
}

/* silu(gate) up: gate's rows of the matrix first, up's behind them. */
static void gated(const struct model *model, const struct layer *layer, const float *x, int64_t rows, float *out) {
    int64_t num_outs = model->ffn_width, num_in = model->width;
    const float *up = layer->gate_up + num_outs * num_in, *bias = layer->gate_up_bias;
#pragma omp for schedule(guided, 1)
    for (int64_t o = 0; o < num_outs; o += CHUNK)
        for (int64_t block = 0; block < num_blocks(rows); block++) {
            int64_t width = block_width(rows, block), start = block * BLOCK, count = least(CHUNK, num_outs - o);
            float ups[CHUNK * BLOCK], *gates = out + start * num_outs + o * width;
            const float *from = x + start * num_in;
            multiply(layer->gate_up + o * num_in, bias ? bias + o : NULL, count, num_in, from, width, gates, 0, block == 0);
            multiply(up + o * num_in, bias ? bias + num_outs + o : NULL, count, num_in, from, width, ups, 0, block == 0);
            for (int64_t i = 0; i < count * width; i++) gates[i] = gates[i] / (1.0f + exponential(-gates[i])) * ups[i];
        }
}

/* RMSNorm of every row (1910.07467, eq. 4). Threads without a block of their own share one: each sums it all, and scales a part. */
static void norm(const float *x, const float *scale_E, int64_t num_features, double eps, int64_t rows, float *out) {
    int64_t num_parts = num_blocks(rows) < omp_get_num_threads() ? omp_get_num_threads() : 1;
#pragma omp for schedule(static)
    for (int64_t task = 0; task < num_blocks(rows) * num_parts; task++) {
        int64_t block = task / num_parts, part = task % num_parts, width = block_width(rows, block);
        int64_t start = block * BLOCK * num_features;
        float inverse[BLOCK] = {0};
        for (int64_t e = 0; e < num_features; e++)
            for (int64_t j = 0; j < width; j++) inverse[j] += x[start + e * width + j] * x[start + e * width + j];
        for (int64_t j = 0; j < width; j++) inverse[j] = 1.0f / sqrtf(inverse[j] / num_features + (float)eps);
        for (int64_t e = part * num_features / num_parts; e < (part + 1) * num_features / num_parts; e++)
            for (int64_t j = 0; j < width; j++) out[start + e * width + j] = x[start + e * width + j] * inverse[j] * scale_E[e];
    }
}

/* One head vector: RMSNorm if the model norms its heads, then turned by its position's angle (2104.09864, section 3.2.2). */
static void turn(float *x_D, const float *norm_D, double eps, const float *cos_D, const float *sin_D, int64_t size) {
    if (norm_D) {
        float sum = 0;
        for (int64_t d = 0; d < size; d++) sum += x_D[d] * x_D[d];
        float inverse = 1.0f / sqrtf(sum / size + (float)eps);
        for (int64_t d = 0; d < size; d++) x_D[d] *= inverse * norm_D[d];
    }
    for (int64_t d = 0; d < size / 2; d++) {
        float first = x_D[d], second = x_D[d + size / 2];
        x_D[d] = first * cos_D[d] - second * sin_D[d];
        x_D[d + size / 2] = second * cos_D[d] + first * sin_D[d];
    }
}

/* Weights of the places that count, from scores; returns what they have to be divided by. */
static float soften(float *scores, int64_t prompt_length, int64_t own_start, int64_t own_length) {
    float largest = -INFINITY, sum = 0;
    for (int64_t t = 0; t < prompt_length; t++) largest = scores[t] > largest ? scores[t] : largest;
    for (int64_t t = own_start; t < own_start + own_length; t++) largest = scores[t] > largest ? scores[t] : largest;
#pragma omp simd reduction(+ : sum)
    for (int64_t t = 0; t < prompt_length; t++) sum += scores[t] = exponential(scores[t] - largest);
#pragma omp simd reduction(+ : sum)
    for (int64_t t = own_start; t < own_start + own_length; t++) sum += scores[t] = exponential(scores[t] - largest);
    return sum;
}

/* Adds each row's key and value to the cache, and attends to its prompt and its own tokens: out_SHD. */
static void attend(const struct model *model, const struct cache *cache, const struct step *step, int64_t l, const float *qkv,
                   float *scratch, float *out_SHD) {
    int64_t H = model->num_heads, K = model->num_kv_heads, D = model->head_size, rows = step->num_rows;
    int64_t share = H / K, padded_D = rounded_up(D, COLUMNS), row = step->longest_prompt_room + cache->room;
    float *q = scratch + omp_get_thread_num() * share * (2 * padded_D + row), *mixed = q + share * padded_D;
    float *scores = mixed + share * padded_D;
#pragma omp for collapse(2) schedule(dynamic, 1)
    for (int64_t s = 0; s < rows; s++)
        for (int64_t k = 0; k < K; k++) {
            const struct layer *layer = &model->layers_L[l];
            const struct prompt *prompt = step->prompts_S[s];
            int64_t width = block_width(rows, s / BLOCK), own = step->lengths_S[s], place = (l * cache->num_slots + s) * K + k;
            const float *column = qkv + s / BLOCK * BLOCK * (H + 2 * K) * D + s % BLOCK;
            const float *cos_D = step->cos_SD + s * D, *sin_D = step->sin_SD + s * D;
            float *keys = cache->keys + place * D * cache->room, *values = cache->values + place * cache->room * padded_D;

            for (int64_t d = 0; d < D; d++) mixed[d] = column[((H + k) * D + d) * width];
            turn(mixed, layer->k_norm_D, model->norm_eps, cos_D, sin_D, D);
            for (int64_t d = 0; d < D; d++) keys[d * cache->room + own] = mixed[d];
            for (int64_t d = 0; d < D; d++) values[own * padded_D + d] = column[((H + K + k) * D + d) * width];
            for (int64_t h = 0; h < share; h++) {
                for (int64_t d = 0; d < D; d++) q[h * D + d] = column[((k * share + h) * D + d) * width];
                turn(q + h * D, layer->q_norm_D, model->norm_eps, cos_D, sin_D, D);
                for (int64_t d = 0; d < D; d++) q[h * D + d] /= sqrtf(D);
            }

            const float *prompt_keys = prompt->keys + (l * K + k) * D * prompt->room;
            const float *prompt_values = prompt->values + (l * K + k) * prompt->room * padded_D;
            int64_t own_columns = rounded_up(own + 1, COLUMNS);
            mix(q, D, share, D, prompt_keys, prompt->room, prompt->room, scores, row, 0);
            mix(q, D, share, D, keys, own_columns, cache->room, scores + prompt->room, row, 0);
            float sums[share];
            for (int64_t h = 0; h < share; h++) sums[h] = soften(scores + h * row, prompt->length, prompt->room, own + 1);
            mix(scores, row, share, prompt->length, prompt_values, padded_D, padded_D, mixed, padded_D, 0);
            mix(scores + prompt->room, row, share, own + 1, values, padded_D, padded_D, mixed, padded_D, 1);
            for (int64_t h = 0; h < share; h++)
                for (int64_t d = 0; d < D; d++) out_SHD[(s * H + k * share + h) * D + d] = mixed[h * padded_D + d] / sums[h];
        }
}

/* [rows][features] to blocks by feature, zeros behind the last row. `tokens_S` picks the rows of a table; NULL = in order. */
static void by_feature(const float *table, const int64_t *tokens_S, int64_t num_features, int64_t rows, float *out) {
#pragma omp for schedule(static)
    for (int64_t e = 0; e < num_features; e++)
        for (int64_t block = 0; block < num_blocks(rows); block++)
            for (int64_t j = 0, width = block_width(rows, block); j < width; j++) {
                int64_t s = block * BLOCK + j, from = s < rows && tokens_S ? tokens_S[s] : s;
                out[block * BLOCK * num_features + e * width + j] = s < rows ? table[from * num_features + e] : 0.0f;
            }
}

static int64_t padded_rows(int64_t rows) {
    int64_t last = num_blocks(rows) - 1;
    return last * BLOCK + block_width(rows, last);
}

/* Floats of scratch that a step needs. */
int64_t scratch_floats(const struct model *model, const struct cache *cache, const struct step *step) {
    int64_t H = model->num_heads, K = model->num_kv_heads, D = model->head_size, rows = padded_rows(step->num_rows);
    int64_t head = 2 * rounded_up(D, COLUMNS) + step->longest_prompt_room + cache->room;
    return rows * (2 * model->width + (H + 2 * K) * D + 2 * H * D + model->ffn_width) + step->num_threads * (H / K) * head;
}

void decode_step(const struct model *model, const struct cache *cache, const struct step *step) {
    int64_t E = model->width, HD = model->num_heads * model->head_size, KD = model->num_kv_heads * model->head_size;
    int64_t rows = step->num_rows, padded = padded_rows(rows);
    float *x = step->scratch, *normed = x + padded * E, *qkv = normed + padded * E, *attended_SHD = qkv + padded * (HD + 2 * KD);
    float *attended = attended_SHD + padded * HD, *inner = attended + padded * HD, *heads = inner + padded * model->ffn_width;
#pragma omp parallel num_threads(step->num_threads)
    {
        by_feature(model->embedding_VE, step->tokens_S, E, rows, x);
        for (int64_t l = 0; l < model->num_layers; l++) {
            const struct layer *layer = &model->layers_L[l];
            norm(x, layer->attention_norm_E, E, model->norm_eps, rows, normed);
            product(layer->qkv, layer->qkv_bias, HD + 2 * KD, E, normed, rows, qkv, 0);
            attend(model, cache, step, l, qkv, heads, attended_SHD);
            by_feature(attended_SHD, NULL, HD, rows, attended);
            product(layer->output, layer->output_bias, E, HD, attended, rows, x, 1);
            norm(x, layer->mlp_norm_E, E, model->norm_eps, rows, normed);
            gated(model, layer, normed, rows, inner);
            product(layer->down, layer->down_bias, E, model->ffn_width, inner, rows, x, 1);
        }
        norm(x, model->norm_E, E, model->norm_eps, rows, normed);
        logits(model, normed, step);
    }
}
