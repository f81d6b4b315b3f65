/* A submission in C: the hand-worked case, computed in float and written as .npy files.
 *
 * cc -O2 -o attention attention.c -lm && ./attention FOLDER
 *
 * FOLDER/handworked/two_heads/{q,k,v,qk,masked,weights,contexts,concat,output}.npy; the folders are made.
 * With -DMISTAKE the heads are laid side by side without moving the head axis back, as many do at first.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { L = 3, D = 4, H = 2, DK = D / H };

static const float x[L][D] = {{0.2f, -0.4f, 1.0f, 0.5f}, {1.1f, 0.3f, -0.2f, 0.8f}, {-0.7f, 1.2f, 0.4f, -0.1f}};
static const float w_q[D][D] = {{0.5f, -0.2f, 0.3f, 0.1f}, {-0.4f, 0.6f, 0.2f, -0.3f}, {0.1f, 0.2f, -0.5f, 0.4f}, {0.3f, -0.1f, 0.6f, 0.2f}};
static const float w_k[D][D] = {{0.2f, 0.4f, -0.3f, 0.1f}, {-0.1f, 0.5f, 0.2f, -0.2f}, {0.6f, -0.3f, 0.1f, 0.4f}, {-0.2f, 0.1f, 0.5f, 0.3f}};
static const float w_v[D][D] = {{0.4f, 0.2f, -0.1f, 0.3f}, {0.1f, -0.5f, 0.6f, 0.2f}, {-0.2f, 0.3f, 0.4f, -0.1f}, {0.5f, 0.1f, 0.2f, -0.4f}};
static const float w_o[D][D] = {{0.7f, -0.2f, 0.1f, 0.3f}, {-0.3f, 0.4f, 0.5f, -0.1f}, {0.2f, 0.6f, -0.4f, 0.15f}, {0.1f, -0.35f, 0.2f, 0.55f}};
static const float b_q[D] = {0.1f, -0.05f, 0.2f, 0.15f}, b_k[D] = {-0.1f, 0.07f, 0.03f, 0.12f};
static const float b_v[D] = {0.02f, 0.1f, -0.08f, 0.05f}, b_o[D] = {0.05f, -0.02f, 0.07f, -0.04f};

static char folder[4096];

/* Write `count` floats of the given shape, e.g. "3, 4", as a .npy file (version 1.0, little endian). */
static void save(const char *name, const char *shape, const float *data, size_t count) {
    char path[4200], header[128];
    snprintf(path, sizeof path, "%s/%s.npy", folder, name);
    FILE *file = fopen(path, "wb");
    if (!file) {
        perror(path);
        exit(1);
    }
    memset(header, ' ', sizeof header);
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10); /* 0x76: what follows, up to 128 bytes in all */
    int n = snprintf(header + 10, 117, "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }", shape);
    header[10 + n] = ' ';
    header[127] = '\n';
    fwrite(header, 1, sizeof header, file);
    fwrite(data, sizeof *data, count, file);
    fclose(file);
}

/* y = x W^T + b for all tokens; weights are stored [out, in]. */
static void project(float y[L][D], const float in[L][D], const float w[D][D], const float b[D]) {
    for (int i = 0; i < L; i++)
        for (int o = 0; o < D; o++) {
            y[i][o] = b[o];
            for (int c = 0; c < D; c++) y[i][o] += in[i][c] * w[o][c];
        }
}

int main(int argc, char **argv) {
    static float q[L][D], k[L][D], v[L][D], qk[H][L][L], masked[H][L][L], weights[H][L][L], contexts[H][L][DK], concat[L][D], output[L][D];
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    const char *parts[] = {"", "/handworked", "/handworked/two_heads"};
    for (int i = 0; i < 3; i++) {
        snprintf(folder, sizeof folder, "%s%s", argv[1], parts[i]);
        mkdir(folder, 0777);
    }
    project(q, x, w_q, b_q);
    project(k, x, w_k, b_k);
    project(v, x, w_v, b_v);
    for (int h = 0; h < H; h++)
        for (int i = 0; i < L; i++) {
            float largest = -INFINITY, sum = 0;
            for (int j = 0; j < L; j++) {
                for (int c = 0; c < DK; c++) qk[h][i][j] += q[i][h * DK + c] * k[j][h * DK + c];
                masked[h][i][j] = qk[h][i][j] / sqrtf(DK);
                largest = fmaxf(largest, masked[h][i][j]);
            }
            for (int j = 0; j < L; j++) sum += weights[h][i][j] = expf(masked[h][i][j] - largest);
            for (int j = 0; j < L; j++) {
                weights[h][i][j] /= sum;
                for (int c = 0; c < DK; c++) contexts[h][i][c] += weights[h][i][j] * v[j][h * DK + c];
            }
        }
#ifdef MISTAKE
    memcpy(concat, contexts, sizeof concat);
#else
    for (int h = 0; h < H; h++)
        for (int i = 0; i < L; i++) memcpy(&concat[i][h * DK], contexts[h][i], sizeof contexts[h][i]);
#endif
    project(output, concat, w_o, b_o);
    save("q", "3, 4", &q[0][0], L * D);
    save("k", "3, 4", &k[0][0], L * D);
    save("v", "3, 4", &v[0][0], L * D);
    save("qk", "2, 3, 3", &qk[0][0][0], H * L * L);
    save("masked", "2, 3, 3", &masked[0][0][0], H * L * L);
    save("weights", "2, 3, 3", &weights[0][0][0], H * L * L);
    save("contexts", "2, 3, 2", &contexts[0][0][0], H * L * DK);
    save("concat", "3, 4", &concat[0][0], L * D);
    save("output", "3, 4", &output[0][0], L * D);
    return 0;
}
