// SyncedMemory and Blob of an installed CPU-only Caffe, one operation at a time (kinds syncedmem and blob).
//
// Answers are JSON: [value, [events]]; when a check fails, "!" and [events], and the process ends. Blocks of memory are
// named by their addresses.

#include <glog/logging.h>

#include "watch.hpp"  // before Caffe's headers: it declares what they include otherwise

#include <boost/shared_ptr.hpp>
#include <boost/weak_ptr.hpp>

#include <map>
#include <string>
#include <vector>

#include "caffe/blob.hpp"
#include "caffe/common.hpp"
#include "caffe/syncedmem.hpp"

#ifndef CPU_ONLY
#error "This program watches host memory only; a Caffe with GPU code moves memory in ways that it does not see."
#endif

using caffe::SyncedMemory;
typedef boost::shared_ptr<SyncedMemory> Shared;

template <typename Tag, typename Tag::type member>
struct Reach {
  friend typename Tag::type reach(Tag) { return member; }
};
#define REACH(tag, owner, kind, member) \
  struct tag {                          \
    typedef kind owner::*type;          \
    friend type reach(tag);             \
  };                                    \
  template struct Reach<tag, &owner::member>

REACH(CpuPtr, SyncedMemory, void*, cpu_ptr_);
REACH(GpuPtr, SyncedMemory, void*, gpu_ptr_);
REACH(OwnCpu, SyncedMemory, bool, own_cpu_data_);
template <typename T>
struct Parts {
  static Shared of(caffe::Blob<T>& blob, int which);
  static int capacity(caffe::Blob<T>& blob);
};
#define PARTS(T)                                                                                    \
  REACH(Data_##T, caffe::Blob<T>, Shared, data_);                                                   \
  REACH(Diff_##T, caffe::Blob<T>, Shared, diff_);                                                   \
  REACH(Shape_##T, caffe::Blob<T>, Shared, shape_data_);                                            \
  REACH(Capacity_##T, caffe::Blob<T>, int, capacity_);                                              \
  template <>                                                                                       \
  Shared Parts<T>::of(caffe::Blob<T>& blob, int which) {                                            \
    return which == 0 ? blob.*reach(Data_##T()) : which == 1 ? blob.*reach(Diff_##T()) : blob.*reach(Shape_##T()); \
  }                                                                                                 \
  template <>                                                                                       \
  int Parts<T>::capacity(caffe::Blob<T>& blob) {                                                    \
    return blob.*reach(Capacity_##T());                                                             \
  }
PARTS(float)
PARTS(double)
PARTS(int)
PARTS(unsigned)

std::string quoted(const std::string& text) { return "\"" + text + "\""; }

// What a block holds, as many bytes as are known of it.
std::string pointer(const void* block) { return block ? watch::name_of(block) : "null"; }

// Every SyncedMemory seen so far has a number; one that is gone never fits again.
std::vector<boost::weak_ptr<SyncedMemory> > seen;

std::string memory_state(const Shared& memory) {
  if (!memory) return "null";
  size_t number = 0;
  while (number < seen.size() && seen[number].lock() != memory) ++number;
  if (number == seen.size()) seen.push_back(memory);
  static const char* heads[] = {"UNINITIALIZED", "HEAD_AT_CPU", "HEAD_AT_GPU", "SYNCED"};
  SyncedMemory& m = *memory;
  return "[" + text_of(number) + "," + text_of(m.size()) + "," + quoted(heads[m.head()]) + "," +
         text_of(static_cast<int>(m.*reach(OwnCpu()))) + "," + pointer(m.*reach(CpuPtr())) + "," +
         pointer(m.*reach(GpuPtr())) + "]";
}

struct Thing {  // a blob of some type, or a SyncedMemory by itself
  virtual ~Thing() {}
  virtual std::string call(const Words& words) = 0;  // words[2]: the function, then its arguments
  virtual std::string state() = 0;
};

std::map<std::string, Thing*> things;

std::vector<int> shape_of(const Words& words, size_t first) {
  std::vector<int> shape;
  for (size_t i = first; i < words.size(); ++i) shape.push_back(int_of(words[i]));
  return shape;
}

template <typename T>
void parse(const Words& words, caffe::BlobProto* proto) {
  CHECK(proto->ParseFromString(bytes_of(words[3])));
}

template <typename T>
struct Number {  // how kind blob writes values
  static std::string text(T value) {
    std::ostringstream stream;
    stream.precision(17);
    stream << value;
    return stream.str();
  }
};

template <typename T>
struct Protos {
  static std::string to(caffe::Blob<T>& blob, const Words& words) {
    caffe::BlobProto proto;
    parse<T>(words, &proto);
    blob.ToProto(&proto, words[4] == "1");
    watch::Off off;
    const std::string bytes = proto.SerializeAsString();
    return quoted(hex_of(bytes.data(), bytes.size()));
  }
  static void from(caffe::Blob<T>& blob, const Words& words) {
    caffe::BlobProto proto;
    parse<T>(words, &proto);
    blob.FromProto(proto, words[4] == "1");
  }
};
template <>
std::string Protos<int>::to(caffe::Blob<int>&, const Words&) { return "null"; }
template <>
void Protos<int>::from(caffe::Blob<int>&, const Words&) {}
template <>
std::string Protos<unsigned>::to(caffe::Blob<unsigned>&, const Words&) { return "null"; }
template <>
void Protos<unsigned>::from(caffe::Blob<unsigned>&, const Words&) {}

template <typename T>
struct BlobThing : public Thing {
  boost::shared_ptr<caffe::Blob<T> > blob;

  static caffe::Blob<T>& other(const std::string& name) { return *static_cast<BlobThing<T>*>(things[name])->blob; }

  std::string call(const Words& words) {
    const std::string& name = words[2];
    caffe::Blob<T>& b = *blob;
    if (name == "cpu_data") return pointer(b.cpu_data());
    if (name == "cpu_diff") return pointer(b.cpu_diff());
    if (name == "gpu_data") return pointer(b.gpu_data());
    if (name == "gpu_diff") return pointer(b.gpu_diff());
    if (name == "gpu_shape") return pointer(b.gpu_shape());
    if (name == "mutable_cpu_data") return pointer(b.mutable_cpu_data());
    if (name == "mutable_cpu_diff") return pointer(b.mutable_cpu_diff());
    if (name == "mutable_gpu_data") return pointer(b.mutable_gpu_data());
    if (name == "mutable_gpu_diff") return pointer(b.mutable_gpu_diff());
    if (name == "set_cpu_data")
      return b.set_cpu_data(reinterpret_cast<T*>(strtoull(words[3].c_str(), NULL, 10))), "null";
    if (name == "data") return b.data(), "null";
    if (name == "diff") return b.diff(), "null";
    if (name == "reshape") return b.Reshape(shape_of(words, 3)), "null";
    if (name == "reshape4")
      return b.Reshape(int_of(words[3]), int_of(words[4]), int_of(words[5]), int_of(words[6])), "null";
    if (name == "reshape_proto") {
      caffe::BlobShape shape;
      CHECK(shape.ParseFromString(bytes_of(words[3])));
      return b.Reshape(shape), "null";
    }
    if (name == "reshape_like") return b.ReshapeLike(other(words[3])), "null";
    if (name == "copy_from") return b.CopyFrom(other(words[3]), words[4] == "1", words[5] == "1"), "null";
    if (name == "share_data") return b.ShareData(other(words[3])), "null";
    if (name == "share_diff") return b.ShareDiff(other(words[3])), "null";
    if (name == "update") return b.Update(), "null";
    if (name == "asum_data") return Number<T>::text(b.asum_data());
    if (name == "asum_diff") return Number<T>::text(b.asum_diff());
    if (name == "sumsq_data") return Number<T>::text(b.sumsq_data());
    if (name == "sumsq_diff") return Number<T>::text(b.sumsq_diff());
    if (name == "scale_data") return b.scale_data(value_of<T>(words[3])), "null";
    if (name == "scale_diff") return b.scale_diff(value_of<T>(words[3])), "null";
    if (name == "shape_string") return quoted(b.shape_string());
    if (name == "num_axes") return text_of(b.num_axes());
    if (name == "shape") return text_of(b.shape(int_of(words[3])));
    if (name == "canonical_axis") return text_of(b.CanonicalAxisIndex(int_of(words[3])));
    if (name == "legacy_shape") return text_of(b.LegacyShape(int_of(words[3])));
    if (name == "num") return text_of(b.num());
    if (name == "channels") return text_of(b.channels());
    if (name == "height") return text_of(b.height());
    if (name == "width") return text_of(b.width());
    if (name == "count") return count(words);
    if (name == "offset4") {
      std::vector<int> at = shape_of(words, 3);
      at.resize(4, 0);
      return text_of(b.offset(at[0], at[1], at[2], at[3]));
    }
    if (name == "offset") return text_of(b.offset(shape_of(words, 3)));
    if (name == "data_at") return Number<T>::text(b.data_at(shape_of(words, 3)));
    if (name == "diff_at") return Number<T>::text(b.diff_at(shape_of(words, 3)));
    if (name == "shape_equals") {
      caffe::BlobProto proto;
      parse<T>(words, &proto);
      return b.ShapeEquals(proto) ? "true" : "false";
    }
    if (name == "from_proto") return Protos<T>::from(b, words), "null";
    if (name == "to_proto") return Protos<T>::to(b, words);
    unknown(words);
    return "";
  }

  std::string count(const Words& words) {
    if (words.size() == 3) return text_of(blob->count());
    if (words.size() == 4) return text_of(blob->count(int_of(words[3])));
    return text_of(blob->count(int_of(words[3]), int_of(words[4])));
  }

  std::string state() {
    std::string shape;
    for (size_t i = 0; i < blob->shape().size(); ++i) shape += (i ? "," : "") + text_of(blob->shape()[i]);
    std::string text = "[[" + shape + "]," + text_of(blob->count()) + "," + text_of(Parts<T>::capacity(*blob));
    for (int which = 0; which < 3; ++which) text += "," + memory_state(Parts<T>::of(*blob, which));
    return text + "]";
  }
};

struct MemoryThing : public Thing {
  Shared memory;

  std::string call(const Words& words) {
    const std::string& name = words[2];
    if (name == "cpu_data") return pointer(memory->cpu_data());
    if (name == "gpu_data") return pointer(memory->gpu_data());
    if (name == "mutable_cpu_data") return pointer(memory->mutable_cpu_data());
    if (name == "mutable_gpu_data") return pointer(memory->mutable_gpu_data());
    if (name == "set_cpu_data") return memory->set_cpu_data(block(words)), "null";
    if (name == "set_gpu_data") return memory->set_gpu_data(block(words)), "null";
    unknown(words);
    return "";
  }

  static void* block(const Words& words) { return reinterpret_cast<void*>(strtoull(words[3].c_str(), NULL, 10)); }
  std::string state() { return memory_state(memory); }
};

template <typename T>
Thing* new_blob(const Words& words) {
  BlobThing<T>* thing = new BlobThing<T>;
  // words: blob NAME TYPE [vector dims … | four n c h w]
  if (words.size() == 3) thing->blob.reset(new caffe::Blob<T>());
  else if (words[3] == "vector") thing->blob.reset(new caffe::Blob<T>(shape_of(words, 4)));
  else thing->blob.reset(new caffe::Blob<T>(int_of(words[4]), int_of(words[5]), int_of(words[6]), int_of(words[7])));
  return thing;
}

std::string run(const Words& words) {
  const std::string& command = words[0];
  if (command == "mode") return caffe::Caffe::set_mode(words[1] == "GPU" ? caffe::Caffe::GPU : caffe::Caffe::CPU), "null";
  if (command == "device") return "null";  // there is only one
  if (command == "memory") {
    MemoryThing* thing = new MemoryThing;
    thing->memory.reset(words[2] == "default" ? new SyncedMemory() : new SyncedMemory(strtoul(words[2].c_str(), NULL, 10)));
    things[words[1]] = thing;
    return "null";
  }
  if (command == "blob") {
    const std::string& type = words[2];
    things[words[1]] = type == "float" ? new_blob<float>(words) : type == "double" ? new_blob<double>(words)
                       : type == "int" ? new_blob<int>(words) : new_blob<unsigned>(words);
    return "null";
  }
  if (command == "delete") {
    delete things[words[1]];
    things.erase(words[1]);
    return "null";
  }
  if (command == "call") return things[words[1]]->call(words);
  watch::Off off;
  if (command == "state") return things[words[1]]->state();
  char* block = reinterpret_cast<char*>(strtoull(words[1].c_str(), NULL, 10));
  if (command == "caller") {  // memory of the caller's that holds these bytes
    const std::string bytes = bytes_of(words[1]);
    block = static_cast<char*>(__libc_malloc(bytes.size()));
    bytes.copy(block, bytes.size());
    watch::blocks()[block] = bytes.size();
    return pointer(block);
  }
  if (command == "read") return quoted(hex_of(block, watch::blocks()[block]));
  if (command == "write") return bytes_of(words[2]).copy(block, watch::blocks()[block]), "null";
  unknown(words);
  return "";
}

std::string take_events() {
  const std::string events = "[" + watch::events() + "]";
  watch::events().clear();
  return events;
}

void failed() {
  watch::Off off;
  reply("!" + take_events());
  abort();
}

int main(int count, char** arguments) {
  google::InitGoogleLogging(arguments[0]);
  google::InstallFailureFunction(failed);
  FLAGS_logtostderr = true;
  watch::start();
  Words words;
  while (read_words(&words)) {
    watch::on = true;
    const std::string value = run(words);
    watch::on = false;
    reply("[" + value + "," + take_events() + "]");
  }
  return 0;
}
