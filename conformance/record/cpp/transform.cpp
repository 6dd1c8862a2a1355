// DataTransformer of an installed Caffe, called directly (kind transform). Answers are JSON.
//
// A datum is the hexadecimal digits of its serialized form, a Mat ROWS,COLS,CHANNELS,BITS:DIGITS, a blob DIMS:DIGITS
// ("-" for no shape).

#include <google/protobuf/text_format.h>

#include <opencv2/core/core.hpp>

#include <string>
#include <vector>

#include "caffe/blob.hpp"
#include "caffe/common.hpp"
#include "caffe/data_transformer.hpp"
#include "caffe/util/io.hpp"
#include "caffe/util/rng.hpp"
#include "lines.hpp"

using caffe::Datum;
typedef caffe::Blob<float> Blob;
typedef std::vector<int> Dims;

class Transformer : public caffe::DataTransformer<float> {
 public:
  Transformer(const caffe::TransformationParameter& param, caffe::Phase phase)
      : caffe::DataTransformer<float>(param, phase) {}

  virtual int Rand(int n) {
    if (stream()) drawn.push_back(caffe::rng_t(*stream())());
    return caffe::DataTransformer<float>::Rand(n);
  }

  caffe::rng_t* stream() { return rng_ ? static_cast<caffe::rng_t*>(rng_->generator()) : NULL; }
  const caffe::TransformationParameter& param() const { return param_; }
  caffe::Phase phase() const { return phase_; }

  std::vector<unsigned> drawn;
};

template <typename T>
std::string list_of(const std::vector<T>& values) {
  std::string text;
  for (size_t i = 0; i < values.size(); ++i) text += (i ? "," : "") + text_of(values[i]);
  return "[" + text + "]";
}

Dims dims_of(const std::string& word) {
  Dims dims;
  std::istringstream stream(word);
  std::string part;
  while (word != "-" && std::getline(stream, part, ',')) dims.push_back(int_of(part));
  return dims;
}

Datum datum_of(const std::string& word) {
  Datum datum;
  CHECK(datum.ParseFromString(bytes_of(word)));
  return datum;
}

cv::Mat mat_of(const std::string& word) {
  const size_t colon = word.find(':');
  const Dims d = dims_of(word.substr(0, colon));
  const std::string bytes = bytes_of(word.substr(colon + 1));
  cv::Mat mat(d[0], d[1], CV_MAKETYPE(d[3] == 8 ? CV_8U : CV_16U, d[2]));
  bytes.copy(reinterpret_cast<char*>(mat.data), bytes.size());
  return mat;
}

void fill(Blob* blob, const std::string& word) {
  const size_t colon = word.find(':');
  if (word[0] != '-') blob->Reshape(dims_of(word.substr(0, colon)));
  const std::string bytes = bytes_of(word.substr(colon + 1));
  if (!bytes.empty()) bytes.copy(reinterpret_cast<char*>(blob->mutable_cpu_data()), bytes.size());
}

std::string contents(const Blob& blob) {
  return blob.count() ? hex_of(blob.cpu_data(), blob.count() * sizeof(float)) : "-";
}

cv::Mat decoded(const Datum& datum, int mode) {
  return mode < 0 ? caffe::DecodeDatumToCVMatNative(datum) : caffe::DecodeDatumToCVMat(datum, mode == 1);
}

// Height and width of what a transformer is given.
Dims size_of(const Datum& datum) {
  Dims size(2);
  size[0] = datum.height(), size[1] = datum.width();
  if (datum.encoded()) {
    const cv::Mat mat = decoded(datum, -1);
    size[0] = mat.rows, size[1] = mat.cols;
  }
  return size;
}

// What a transformer in this state does with images of these sizes: each pixel of an image is its own index. Means and
// scale are left out, and the random numbers are the ones that the real call gets.
std::string places(Transformer& like, const caffe::rng_t* state, const std::vector<Dims>& sizes) {
  caffe::TransformationParameter param(like.param());
  param.clear_mean_file();
  param.clear_mean_value();
  param.clear_scale();
  param.clear_force_color();
  param.clear_force_gray();
  Transformer transformer(param, like.phase());
  const caffe::rng_t global(*caffe::caffe_rng());
  transformer.InitRand();
  *caffe::caffe_rng() = global;
  if (state && transformer.stream()) *transformer.stream() = *state;
  std::string mirror, h_off, w_off;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int height = sizes[i][0], width = sizes[i][1];
    Datum datum;
    datum.set_channels(1);
    datum.set_height(height);
    datum.set_width(width);
    for (int k = 0; k < height * width; ++k) datum.add_float_data(k);
    Blob top(transformer.InferBlobShape(datum));
    transformer.Transform(datum, &top);
    const int out = top.width(), first = static_cast<int>(top.cpu_data()[0]);
    const bool flipped = out > 1 && top.cpu_data()[1] < top.cpu_data()[0];
    const std::string comma = i ? "," : "";
    mirror += comma + (out == 1 ? "null" : flipped ? "true" : "false");
    h_off += comma + text_of(first / width);
    w_off += comma + text_of(first % width - (flipped ? out - 1 : 0));
  }
  return "[[" + mirror + "],[" + h_off + "],[" + w_off + "]]";
}

std::string infer(Transformer& transformer, const Words& words) {  // infer WHAT THING …
  const std::string& what = words[1];
  std::vector<Datum> datums;
  std::vector<cv::Mat> mats;
  for (size_t i = 2; i < words.size(); ++i) {
    if (what[0] == 'd') datums.push_back(datum_of(words[i]));
    if (what[0] == 'm') mats.push_back(mat_of(words[i]));
  }
  if (what == "datum") return list_of(transformer.InferBlobShape(datums[0]));
  if (what == "datums") return list_of(transformer.InferBlobShape(datums));
  if (what == "mat") return list_of(transformer.InferBlobShape(mats[0]));
  return list_of(transformer.InferBlobShape(mats));
}

std::string transform(Transformer& transformer, const Words& words) {  // transform WHAT TOP THING …
  const std::string& what = words[1];
  Blob top, input;
  fill(&top, words[2]);
  std::vector<Datum> datums;
  std::vector<cv::Mat> mats;
  std::vector<Dims> sizes;
  for (size_t i = 3; i < words.size(); ++i) {
    Dims size(2);
    if (what[0] == 'd') {
      datums.push_back(datum_of(words[i]));
    } else if (what[0] == 'm') {
      mats.push_back(mat_of(words[i]));
      size[0] = mats.back().rows, size[1] = mats.back().cols;
    } else {
      fill(&input, words[i]);
      if (input.num_axes() == 4) size[0] = input.height(), size[1] = input.width();
    }
    sizes.push_back(size);
  }
  caffe::rng_t before;
  if (transformer.stream()) before = *transformer.stream();
  transformer.drawn.clear();
  if (what == "datum") transformer.Transform(datums[0], &top);
  if (what == "datums") transformer.Transform(datums, &top);
  if (what == "mat") transformer.Transform(mats[0], &top);
  if (what == "mats") transformer.Transform(mats, &top);
  if (what == "blob") transformer.Transform(&input, &top);
  const std::vector<unsigned> drawn(transformer.drawn);
  for (size_t i = 0; i < datums.size(); ++i) sizes[i] = size_of(datums[i]);
  return "[" + list_of(top.shape()) + "," + list_of(drawn) + "," +
         places(transformer, transformer.stream() ? &before : NULL, sizes) + ",\"" + contents(top) + "\",\"" +
         (what == "blob" ? contents(input) : "-") + "\"]";
}

std::string next_words(caffe::rng_t stream, int count) {
  std::vector<unsigned> words;
  for (int i = 0; i < count; ++i) words.push_back(stream());
  return list_of(words);
}

int main(int, char** arguments) {
  google::InitGoogleLogging(arguments[0]);
  FLAGS_logtostderr = true;
  Transformer* transformer = NULL;
  Words words;
  while (read_words(&words)) {
    const std::string& command = words[0];
    if (command == "seed") {
      caffe::Caffe::set_random_seed(unsigned_of(words[1]));
      reply("null");
    } else if (command == "next") {
      reply(next_words(*caffe::caffe_rng(), int_of(words[1])));
    } else if (command == "new") {  // new PHASE TEXT
      caffe::TransformationParameter param;
      CHECK(google::protobuf::TextFormat::ParseFromString(bytes_of(words[2]), &param));
      transformer = new Transformer(param, words[1] == "TRAIN" ? caffe::TRAIN : caffe::TEST);
      reply("null");
    } else if (command == "init_rand") {
      transformer->InitRand();
      reply("null");
    } else if (command == "ahead") {
      reply(transformer->stream() ? next_words(*transformer->stream(), int_of(words[1])) : "null");
    } else if (command == "rand") {
      reply(text_of(transformer->Rand(int_of(words[1]))));
    } else if (command == "infer") {
      reply(infer(*transformer, words));
    } else if (command == "transform") {
      reply(transform(*transformer, words));
    } else if (command == "decode") {  // decode MODE DATUM; -1: as it is, 0: gray, 1: color
      const cv::Mat mat = decoded(datum_of(words[2]), int_of(words[1]));
      reply("[" + text_of(mat.rows) + "," + text_of(mat.cols) + "," + text_of(mat.channels()) + "," +
            text_of(mat.elemSize1()) + ",\"" + hex_of(mat.data, mat.total() * mat.elemSize()) + "\"]");
    } else {
      unknown(words);
    }
  }
  return 0;
}
