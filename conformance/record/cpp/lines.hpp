// What the recording programs have in common: they read commands, words on a line, from standard input and answer each
// with a line on standard output. Numbers are decimal, arrays the hexadecimal digits of their bytes ("-" if empty).
// A failed check of Caffe's ends the process; its message is on standard error.

#ifndef REFCAFFE_RECORD_LINES_HPP_
#define REFCAFFE_RECORD_LINES_HPP_

#include <stdlib.h>

#include <iostream>
#include <sstream>
#include <string>
#include <vector>

typedef std::vector<std::string> Words;

inline bool read_words(Words* words) {
  std::string line, word;
  if (!std::getline(std::cin, line)) return false;
  words->clear();
  std::istringstream stream(line);
  while (stream >> word) words->push_back(word);
  return true;
}

inline void reply(const std::string& line) { std::cout << line << std::endl; }

inline void unknown(const Words& words) {
  std::cerr << "unknown command: " << (words.empty() ? "" : words[0]) << std::endl;
  exit(2);
}

inline std::string hex_of(const void* bytes, size_t size) {
  static const char digits[] = "0123456789abcdef";
  if (size == 0) return "-";
  std::string text;
  text.reserve(2 * size);
  for (size_t i = 0; i < size; ++i) {
    const unsigned char byte = static_cast<const unsigned char*>(bytes)[i];
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

template <typename T>
std::string hex_of(const std::vector<T>& values) {
  return hex_of(values.empty() ? NULL : &values[0], values.size() * sizeof(T));
}

inline std::string bytes_of(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; hex != "-" && i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(strtol(hex.substr(i, 2).c_str(), NULL, 16));
  return bytes;
}

// A number of type T from the hexadecimal digits of its bytes.
template <typename T>
T value_of(const std::string& hex) {
  const std::string bytes = bytes_of(hex);
  T value = T();
  bytes.copy(reinterpret_cast<char*>(&value), sizeof(T));
  return value;
}

inline int int_of(const std::string& word) { return static_cast<int>(strtol(word.c_str(), NULL, 10)); }

inline unsigned unsigned_of(const std::string& word) { return static_cast<unsigned>(strtoul(word.c_str(), NULL, 10)); }

template <typename T>
std::string text_of(T value) {
  std::ostringstream stream;
  stream << value;
  return stream.str();
}

#endif  // REFCAFFE_RECORD_LINES_HPP_
