// The random stream of an installed Caffe (kind rng). Every answer is: raw words drawn, the next raw word, the values.

#include <boost/random/mersenne_twister.hpp>

#include <algorithm>
#include <vector>

#include "caffe/common.hpp"
#include "caffe/util/math_functions.hpp"
#include "caffe/util/rng.hpp"
#include "lines.hpp"

using caffe::caffe_rng;
using caffe::rng_t;

// How many words lead from one state of a stream to another. A state is copied only where the next word fits.
long drawn(const rng_t& before, const rng_t& after) {
  rng_t stream(before), ahead(after);
  const unsigned next = ahead();
  for (long count = 0;; ++count) {
    if (stream() != next) continue;
    rng_t candidate(before);
    candidate.discard(count);
    if (candidate == after) return count;
  }
}

template <typename T>
std::vector<T> filled(const Words& words, const std::string& call) {
  const int n = int_of(words.back());
  std::vector<T> values(std::max(n, 0));
  T* out = values.empty() ? NULL : &values[0];
  T nothing;
  if (!out) out = &nothing;
  if (call == "uniform") caffe::caffe_rng_uniform<T>(n, value_of<T>(words[2]), value_of<T>(words[3]), out);
  if (call == "gaussian") caffe::caffe_rng_gaussian<T>(n, value_of<T>(words[2]), value_of<T>(words[3]), out);
  return values;
}

template <typename T, typename R>
std::vector<R> bernoulli(const Words& words) {
  const int n = int_of(words.back());
  std::vector<R> values(std::max(n, 1));
  caffe::caffe_rng_bernoulli<T>(n, value_of<T>(words[3]), &values[0]);
  values.resize(std::max(n, 0));
  return values;
}

template <typename T>
void null_call(const std::string& call) {
  if (call == "uniform") caffe::caffe_rng_uniform<T>(1, 0, 1, static_cast<T*>(NULL));
  if (call == "gaussian") caffe::caffe_rng_gaussian<T>(1, 0, 1, static_cast<T*>(NULL));
  if (call == "bernoulli") caffe::caffe_rng_bernoulli<T>(1, T(0.5), static_cast<int*>(NULL));
}

// The values of a call, as hexadecimal digits.
std::string values_of(const Words& words) {
  const std::string& call = words[0];
  if (call == "seed") {
    caffe::Caffe::set_random_seed(unsigned_of(words[1]));
    return "-";
  }
  if (call == "rand" || call == "skip") {
    std::vector<unsigned> values;
    for (long i = 0, n = atol(words[1].c_str()); i < n; ++i) {
      const unsigned word = caffe::caffe_rng_rand();
      if (call == "rand") values.push_back(word);
    }
    return hex_of(values);
  }
  if (call == "uniform" || call == "gaussian")
    return words[1] == "float" ? hex_of(filled<float>(words, call)) : hex_of(filled<double>(words, call));
  if (call == "bernoulli" && words[1] == "int")
    return hex_of(words[2] == "float" ? bernoulli<float, int>(words) : bernoulli<double, int>(words));
  if (call == "bernoulli")
    return hex_of(words[2] == "float" ? bernoulli<float, unsigned>(words) : bernoulli<double, unsigned>(words));
  if (call == "shuffle") {
    std::vector<int> values(int_of(words[1]));
    for (size_t i = 0; i < values.size(); ++i) values[i] = i;
    caffe::shuffle(values.begin(), values.end());
    return hex_of(values);
  }
  if (call == "sub_rng") {
    caffe::Caffe::RNG sub(caffe::caffe_rng_rand());
    rng_t* stream = static_cast<rng_t*>(sub.generator());
    std::vector<unsigned> values;
    for (int i = 0, n = int_of(words[1]); i < n; ++i) values.push_back((*stream)());
    return hex_of(values);
  }
  if (call == "nextafter" && words[1] == "float") {
    const float next = caffe::caffe_nextafter<float>(value_of<float>(words[2]));
    return hex_of(&next, sizeof(next));
  }
  if (call == "nextafter") {
    const double next = caffe::caffe_nextafter<double>(value_of<double>(words[2]));
    return hex_of(&next, sizeof(next));
  }
  if (call == "null") {
    null_call<float>(words[1]);
    return "-";
  }
  unknown(words);
  return "";
}

int main() {
  Words words;
  while (read_words(&words)) {
    const rng_t before(*caffe_rng());
    const std::string values = values_of(words);
    const bool counted = words[0] != "seed" && words[0] != "skip";
    const long count = words[0] == "skip" ? atol(words[1].c_str()) : counted ? drawn(before, *caffe_rng()) : 0;
    rng_t ahead(*caffe_rng());
    reply(text_of(count) + " " + text_of(ahead()) + " " + values);
  }
  return 0;
}
