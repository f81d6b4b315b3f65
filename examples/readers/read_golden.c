/* Reads one exported case and computes two of its stages again: weights from masked scores, contexts from weights and values.

   cc -std=c99 -O2 -o read_golden read_golden.c -lm
   ./read_golden results/export/SUITE/plain/CASE [TOLERANCE]                    reads the .npy files of the case
   ./read_golden results/export/SUITE/golden.safetensors/CASE [TOLERANCE]       reads its arrays in that one file

   Exit status: 0 if all agree within the tolerance (by default the one that case.json states), 1 if not,
   2 if a file is missing or damaged. */

#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_AXES = 8 };

typedef struct {
    char descr[4]; /* <f8, <f4, <f2, <u2 (bfloat16) or |b1 */
    int axes;
    size_t shape[MOST_AXES], size;
    double *values; /* whatever the type, as doubles; NULL if there is no such file */
} Array;

static const char *folder;      /* of case.json, and of the .npy files */
static unsigned char *tensors;  /* the bytes of golden.safetensors; NULL where the .npy files are read */
static size_t tensors_size;
static const char *tensors_case;

static void damaged(const char *name, const char *what) {
    fprintf(stderr, "%s/%s: %s\n", folder, name, what);
    exit(2);
}

/* All bytes of a file and a 0 behind them; NULL if there is no such file. */
static unsigned char *read_file(const char *name, size_t *size) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) damaged(name, "the path is too long");
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    long end = fseek(file, 0, SEEK_END) ? -1 : ftell(file);
    unsigned char *bytes = end < 0 || end == LONG_MAX ? NULL : malloc((size_t)end + 1);
    if (!bytes) damaged(name, "cannot be read");
    rewind(file);
    if (fread(bytes, 1, (size_t)end, file) != (size_t)end) damaged(name, "cannot be read");
    fclose(file);
    bytes[end] = 0;
    *size = (size_t)end;
    return bytes;
}

/* The number in `width` little-endian bytes, on a machine of either kind. */
static double number(const unsigned char *bytes, const char *descr) {
    uint64_t bits = 0;
    int width = descr[2] - '0';
    for (int i = width - 1; i >= 0; i--) bits = bits << 8 | bytes[i];
    if (width == 8) {
        double value;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    if (descr[1] == 'b') return bits != 0;
    if (descr[1] == 'f' && width == 2) { /* sign, five bits of exponent, ten of fraction */
        int exponent = (int)(bits >> 10 & 31), fraction = (int)(bits & 1023);
        double size = exponent == 31 ? (fraction ? NAN : INFINITY) : exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
        return bits >> 15 ? -size : size;
    }
    uint32_t word = (uint32_t)(width == 2 ? bits << 16 : bits); /* bfloat16 is the upper half of a float32 */
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

/* Reads "2, 3" into the shape of an array that has `room` numbers at most. Returns what follows. */
static const char *read_shape(const char *at, Array *array, size_t room, const char *name) {
    while (*at >= '0' && *at <= '9') {
        char *end;
        unsigned long long n = strtoull(at, &end, 10);
        if (array->axes == MOST_AXES || n == 0 || n > room / array->size) damaged(name, "does not hold as many numbers as its shape says");
        array->shape[array->axes++] = (size_t)n;
        array->size *= (size_t)n;
        at = end + strspn(end, ", ");
    }
    return at;
}

static void read_numbers(Array *array, const unsigned char *bytes, size_t size, const char *name) {
    size_t width = (size_t)(array->descr[2] - '0');
    if (array->size * width != size) damaged(name, "does not hold as many numbers as its shape says");
    array->values = malloc(array->size * sizeof *array->values);
    if (!array->values) damaged(name, "is too large for the memory");
    for (size_t i = 0; i < array->size; i++) array->values[i] = number(bytes + i * width, array->descr);
}

/* golden.safetensors has the length of its header in 8 bytes, the header in JSON without spaces, and the numbers. Of the header, what is
   needed is looked up as text, for names are plain: "CASE/masked":{"dtype":"F64","shape":[2,3,3],"data_offsets":[0,144]} */
static Array read_tensor(const char *name) {
    static const char *const types[][2] = {{"F64", "<f8"}, {"F32", "<f4"}, {"F16", "<f2"}, {"BF16", "<u2"}, {"BOOL", "|b1"}};
    Array array = {"", 0, {0}, 1, NULL};
    size_t length = 0, from = 0, to = 0;
    for (int i = 7; i >= 0; i--) length = length << 8 | tensors[i];
    if (length > tensors_size - 8) damaged(name, "golden.safetensors is cut short in its header");
    char key[4200];
    snprintf(key, sizeof key, "\"%s/%.*s\":{\"dtype\":\"", tensors_case, (int)strcspn(name, "."), name);
    char *header = malloc(length + 1);
    if (!header) damaged(name, "is too large for the memory");
    memcpy(header, tensors + 8, length);
    header[length] = 0;
    const char *at = strstr(header, key);
    if (at) {
        at += strlen(key);
        for (size_t i = 0; i < sizeof types / sizeof *types; i++)
            if (strcspn(at, "\"") == strlen(types[i][0]) && !strncmp(at, types[i][0], strlen(types[i][0]))) strcpy(array.descr, types[i][1]);
        if (!*array.descr) damaged(name, "holds numbers of a type not read here");
        at = strstr(at, "\"shape\":[");
        if (at) at = read_shape(at + 9, &array, tensors_size, name);
        const char *places = "],\"data_offsets\":[";
        if (!at || strncmp(at, places, strlen(places))) damaged(name, "has no shape or no place in golden.safetensors");
        char *comma;
        from = strtoull(at + strlen(places), &comma, 10);
        to = strtoull(comma + (*comma == ','), NULL, 10);
        if (from > to || to > tensors_size - 8 - length) damaged(name, "does not hold as many numbers as its shape says");
        read_numbers(&array, tensors + 8 + length + from, to - from, name);
    }
    free(header);
    return array;
}

static Array read_array(const char *name) {
    if (tensors) return read_tensor(name);
    Array array = {"", 0, {0}, 1, NULL};
    size_t size;
    unsigned char *bytes = read_file(name, &size);
    if (!bytes) return array;
    if (size < 10 || memcmp(bytes, "\x93NUMPY\x01\x00", 8)) damaged(name, "is not a .npy file of version 1.0");
    size_t start = 10 + bytes[8] + ((size_t)bytes[9] << 8);
    if (start > size) damaged(name, "is cut short in its header");
    char header[65536];
    memcpy(header, bytes + 10, start - 10);
    header[start - 10] = 0;
    const char *descr = strstr(header, "'descr': '"), *shape = strstr(header, "'shape': (");
    if (!descr || !shape || !strstr(header, "'fortran_order': False")) damaged(name, "has a header without descr, shape or C order");
    memcpy(array.descr, descr + 10, 3);
    if (!strstr("<f8 <f4 <f2 <u2 |b1", array.descr) || strlen(array.descr) != 3) damaged(name, "holds numbers of a type not read here");
    read_shape(shape + 10, &array, size - start, name);
    read_numbers(&array, bytes + start, size - start, name);
    free(bytes);
    return array;
}

static Array first_of(const char *a, const char *b, const char *c) {
    Array array = read_array(a);
    if (!array.values && b) array = read_array(b);
    if (!array.values && c) array = read_array(c);
    return array;
}

/* The largest difference of any two elements, by the largest element or 1; equal infinities and two NaN do not differ. */
static double difference(const double *ours, const Array *theirs) {
    double worst = 0, largest = 1;
    for (size_t i = 0; i < theirs->size; i++) {
        double a = ours[i], b = theirs->values[i];
        if (isfinite(b)) largest = fmax(largest, fabs(b));
        if (a == b || (isnan(a) && isnan(b))) continue;
        worst = fmax(worst, isfinite(a) && isfinite(b) ? fabs(a - b) : INFINITY);
    }
    return worst / largest;
}

/* One row: exp(score - largest) / sum, where a sink joins the sum alone (-INFINITY is none); `empty` is for rows without a key. */
static void softmax(const double *scores, double *weights, size_t n, double sink, double empty) {
    double most = sink, sum = 0;
    for (size_t j = 0; j < n; j++)
        if (scores[j] > most || isnan(scores[j])) most = scores[j];
    for (size_t j = 0; j < n; j++) sum += weights[j] = exp(scores[j] - (most == -INFINITY ? 0 : most));
    if (sink > -INFINITY) sum += exp(sink - most);
    for (size_t j = 0; j < n; j++) weights[j] = most == -INFINITY ? empty : weights[j] / sum;
}

static void hardmax(const double *scores, double *weights, size_t n) {
    size_t best = 0;
    for (size_t j = 1; j < n; j++)
        if (scores[j] > scores[best]) best = j;
    for (size_t j = 0; j < n; j++) weights[j] = j == best && scores[j] > -INFINITY;
}

static void bare(const double *scores, double *weights, size_t n) { /* no softmax: the scores themselves, 0 for a blocked key */
    for (size_t j = 0; j < n; j++) weights[j] = scores[j] == -INFINITY ? 0 : scores[j];
}

int main(int count, char **words) {
    if (count < 2 || count > 3) {
        fprintf(stderr, "usage: read_golden CASE_FOLDER [TOLERANCE]\n");
        return 2;
    }
    folder = words[1];
    const char *one = strstr(words[1], "/golden.safetensors/");
    if (one) { /* the options of the case stand in plain/CASE/case.json beside that file */
        static char place[4096];
        folder = place;
        if (snprintf(place, sizeof place, "%.*s", (int)(one - words[1]), words[1]) >= (int)sizeof place) damaged(words[1], "the path is too long");
        tensors_case = one + strlen("/golden.safetensors/");
        tensors = read_file("golden.safetensors", &tensors_size);
        if (!tensors || tensors_size < 8) damaged("golden.safetensors", tensors ? "is cut short in its header" : "is missing");
        if (snprintf(place, sizeof place, "%.*s/plain/%s", (int)(one - words[1]), words[1], tensors_case) >= (int)sizeof place)
            damaged(words[1], "the path is too long");
    }
    size_t size;
    char *options = (char *)read_file("case.json", &size); /* what is needed of it is looked up as text */
    if (!options) damaged("case.json", "is missing");
    int hard = strstr(options, "\"softmax\": \"hardmax\"") != NULL, plus_one = strstr(options, "\"softmax\": \"plus_one\"") != NULL;
    int none = strstr(options, "\"softmax\": \"none\"") != NULL;
    Array masked = read_array("masked.npy"), weights = read_array("weights.npy"), sinks = read_array("sinks.npy");
    if (!masked.values || !weights.values) damaged(masked.values ? "weights.npy" : "masked.npy", "is missing");
    int axes = weights.axes;
    if (axes < 3 || masked.axes != axes || memcmp(masked.shape, weights.shape, sizeof weights.shape))
        damaged("weights.npy", "has not the shape [..., H, Lq, Lk] of masked.npy");
    size_t heads = weights.shape[axes - 3], queries = weights.shape[axes - 2], keys = weights.shape[axes - 1];
    if (sinks.values && sinks.size != heads) damaged("sinks.npy", "has not one number for each head");
    const char *stated = strstr(options, "\"tolerance\": ");
    if (!stated) damaged("case.json", "states no tolerance");
    double tolerance = atof(count == 3 ? words[2] : stated + 13);

    double *ours = malloc(weights.size * sizeof *ours);
    if (!ours) damaged("weights.npy", "is too large for the memory");
    double empty = strstr(options, "\"empty_row\": \"uniform\"") ? 1.0 / (double)keys : strstr(options, "\"empty_row\": \"nan\"") ? NAN : 0;
    for (size_t row = 0; row < weights.size / keys; row++) {
        double sink = plus_one ? 0 : sinks.values ? sinks.values[row / queries % heads] : -INFINITY;
        if (hard) hardmax(masked.values + row * keys, ours + row * keys, keys);
        else if (none) bare(masked.values + row * keys, ours + row * keys, keys);
        else softmax(masked.values + row * keys, ours + row * keys, keys, sink, empty);
    }
    double worst = difference(ours, &weights);
    int wrong = !(worst <= tolerance);
    printf("weights: largest difference %.3g\n", worst);
    free(ours);

    Array contexts = read_array("contexts.npy");
    if (!contexts.values) return wrong; /* a case that has no values ends here */
    Array used = first_of("dropped.npy", "weights.npy", NULL), values = first_of("v_extended.npy", "present_v.npy", "v_heads.npy");
    if (!values.values) damaged("v_heads.npy", "is missing");
    size_t width = contexts.shape[contexts.axes - 1], groups = values.axes == axes ? values.shape[axes - 3] : 0;
    size_t batch = weights.size / (heads * queries * keys);
    if (used.size != weights.size || !groups || heads % groups || values.size != batch * groups * keys * width
        || contexts.size != batch * heads * queries * width)
        damaged("contexts.npy", "does not fit the shapes of weights and values");
    ours = malloc(contexts.size * sizeof *ours);
    if (!ours) damaged("contexts.npy", "is too large for the memory");
    for (size_t row = 0; row < contexts.size / width; row++) {
        size_t head = row / queries; /* counted through the batch; a block of neighbouring heads shares one head of values */
        const double *v = values.values + head / (heads / groups) * keys * width;
        for (size_t c = 0; c < width; c++) {
            double sum = 0;
            for (size_t j = 0; j < keys; j++) sum += used.values[row * keys + j] * v[j * width + c];
            ours[row * width + c] = sum;
        }
    }
    worst = difference(ours, &contexts);
    printf("contexts: largest difference %.3g\n", worst);
    return wrong || !(worst <= tolerance);
}
