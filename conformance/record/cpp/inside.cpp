// caffe_inside: what pycaffe does not show of nets and solvers, as a Python module beside it.
//
// Built against the Caffe, the Python and the Boost.Python that pycaffe itself was built with; see CMakeLists.txt.
// record_pycaffe.py imports it if it is there. Members that Caffe keeps to itself are reached through explicit
// instantiation, which the language exempts from access control: no header of Caffe's is changed.

#include <Python.h>

#include <boost/python.hpp>
#include <google/protobuf/text_format.h>

#include <string>
#include <vector>

#include "caffe/caffe.hpp"
#include "caffe/sgd_solvers.hpp"
#include "caffe/util/io.hpp"
#include "caffe/util/rng.hpp"
#ifdef USE_OPENCV
#include <opencv2/core/core.hpp>
#endif

namespace py = boost::python;
typedef caffe::Net<float> Net;
typedef caffe::Blob<float> Blob;
typedef caffe::Solver<float> Solver;
typedef boost::shared_ptr<Blob> BlobPtr;

template <typename Tag, typename Tag::type member>
struct Reach {
  friend typename Tag::type reach(Tag) { return member; }
};
#define REACH(tag, owner, kind, member)              \
  struct tag {                                       \
    typedef kind owner::*type;                       \
    friend type reach(tag);                          \
  };                                                 \
  template struct Reach<tag, &owner::member>

REACH(ParamIds, Net, std::vector<std::vector<int> >, param_id_vecs_);
REACH(LearnableIds, Net, std::vector<int>, learnable_param_ids_);
REACH(BlobNeedBackward, Net, std::vector<bool>, blob_need_backward_);
REACH(MemoryUsed, Net, size_t, memory_used_);
REACH(CurrentStep, Solver, int, current_step_);
REACH(Losses, Solver, std::vector<float>, losses_);
REACH(SmoothedLoss, Solver, float, smoothed_loss_);
REACH(EarlyExit, Solver, bool, requested_early_exit_);

template <typename Container>
py::list to_list(const Container& values) {
  py::list list;
  for (typename Container::const_iterator i = values.begin(); i != values.end(); ++i) list.append(*i);
  return list;
}

py::list to_list(const std::vector<bool>& values) {
  py::list list;
  for (size_t i = 0; i < values.size(); ++i) list.append(static_cast<bool>(values[i]));
  return list;
}

template <typename T>
py::list to_lists(const std::vector<std::vector<T> >& values) {
  py::list list;
  for (size_t i = 0; i < values.size(); ++i) list.append(to_list(values[i]));
  return list;
}

const char* phase_name(caffe::Phase phase) { return phase == caffe::TRAIN ? "TRAIN" : "TEST"; }

std::string text_of(const google::protobuf::Message& message) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(message, &text);
  return text;
}

py::dict structure(const Net& net) {
  py::dict info;
  py::list types, phases, shapes, propagate;
  for (size_t i = 0; i < net.layers().size(); ++i) {
    caffe::Layer<float>& layer = *net.layers()[i];
    types.append(std::string(layer.type()));
    phases.append(phase_name(layer.layer_param().phase()));
    py::list own_shapes, own_propagate;
    for (size_t k = 0; k < layer.blobs().size(); ++k) {
      own_shapes.append(to_list(layer.blobs()[k]->shape()));
      own_propagate.append(layer.param_propagate_down(k));
    }
    shapes.append(own_shapes);
    propagate.append(own_propagate);
  }
  py::list bottom_ids, top_ids, blob_shapes, weights, inputs, outputs;
  for (size_t i = 0; i < net.layers().size(); ++i) {
    bottom_ids.append(to_list(net.bottom_ids(i)));
    top_ids.append(to_list(net.top_ids(i)));
  }
  for (size_t i = 0; i < net.blobs().size(); ++i) {
    blob_shapes.append(to_list(net.blobs()[i]->shape()));
    weights.append(i < net.blob_loss_weights().size() ? net.blob_loss_weights()[i] : 0.f);
  }
  for (int i = 0; i < net.num_inputs(); ++i) inputs.append(net.blob_names()[net.input_blob_indices()[i]]);
  for (int i = 0; i < net.num_outputs(); ++i) outputs.append(net.blob_names()[net.output_blob_indices()[i]]);
  info["name"] = net.name();
  info["phase"] = phase_name(net.phase());
  info["layer_names"] = to_list(net.layer_names());
  info["layer_types"] = types;
  info["layer_phases"] = phases;
  info["layer_param_shapes"] = shapes;
  info["layer_param_propagate_down"] = propagate;
  info["bottom_ids"] = bottom_ids;
  info["top_ids"] = top_ids;
  info["bottom_need_backward"] = to_lists(net.bottom_need_backward());
  info["layer_need_backward"] = to_list(net.layer_need_backward());
  info["param_ids"] = to_lists(net.*reach(ParamIds()));
  info["blob_names"] = to_list(net.blob_names());
  info["blob_shapes"] = blob_shapes;
  info["blob_loss_weights"] = weights;
  info["blob_need_backward"] = to_list(net.*reach(BlobNeedBackward()));
  info["inputs"] = to_list(net.input_blob_indices());
  info["outputs"] = to_list(net.output_blob_indices());
  info["input_names"] = inputs;
  info["output_names"] = outputs;
  info["param_owners"] = to_list(net.param_owners());
  info["param_display_names"] = to_list(net.param_display_names());
  info["learnable_param_ids"] = to_list(net.*reach(LearnableIds()));
  info["num_learnable"] = net.learnable_params().size();
  info["params_lr"] = to_list(net.params_lr());
  info["params_weight_decay"] = to_list(net.params_weight_decay());
  info["has_params_lr"] = to_list(net.has_params_lr());
  info["has_params_decay"] = to_list(net.has_params_decay());
  info["memory_used"] = net.*reach(MemoryUsed());
  return info;
}

// The text of the net's NetParameter as it would be saved, without blobs.
std::string definition(const Net& net) {
  caffe::NetParameter param;
  net.ToProto(&param, false);
  for (int i = 0; i < param.layer_size(); ++i) param.mutable_layer(i)->clear_blobs();
  return text_of(param);
}

void update(Net* net) { net->Update(); }

// Blobs as pycaffe shows them: the learnable parameters, in their order.
py::list learnable(const Net& net) {
  py::list blobs;
  for (size_t i = 0; i < net.learnable_params().size(); ++i) {
    for (size_t k = 0; k < net.params().size(); ++k) {
      if (net.params()[k].get() == net.learnable_params()[i]) {
        blobs.append(net.params()[k]);
        break;
      }
    }
  }
  return blobs;
}

py::list history(Solver* solver) {
  caffe::SGDSolver<float>* sgd = dynamic_cast<caffe::SGDSolver<float>*>(solver);
  return sgd ? to_list(sgd->history()) : py::list();
}

py::dict solver_state(const Solver& solver) {
  py::dict state;
  state["type"] = std::string(solver.type());
  state["current_step"] = solver.*reach(CurrentStep());
  state["losses"] = to_list(solver.*reach(Losses()));
  state["smoothed_loss"] = solver.*reach(SmoothedLoss());
  state["requested_early_exit"] = solver.*reach(EarlyExit());
  return state;
}

struct Rate : public caffe::SGDSolver<float> {  // only to name a protected member
  static float of(caffe::SGDSolver<float>& solver) { return (solver.*(&Rate::GetLearningRate))(); }
};

// The rate that the next update will use. Asking is not to change what that update sees, nor to leave a trace in the log.
float rate(Solver* solver) {
  const int step = solver->*reach(CurrentStep()), level = FLAGS_minloglevel;
  FLAGS_minloglevel = google::GLOG_ERROR;
  const float rate = Rate::of(dynamic_cast<caffe::SGDSolver<float>&>(*solver));
  FLAGS_minloglevel = level;
  solver->*reach(CurrentStep()) = step;
  return rate;
}

std::string solver_param(const Solver& solver) { return text_of(solver.param()); }

struct Ask {
  py::object function;
  caffe::SolverAction::Enum operator()() const {
    const std::string answer = py::extract<std::string>(function());
    return answer == "stop" ? caffe::SolverAction::STOP
                            : answer == "snapshot" ? caffe::SolverAction::SNAPSHOT : caffe::SolverAction::NONE;
  }
};

void set_actions(Solver* solver, py::object function) {
  Ask ask;
  ask.function = function;
  solver->SetActionFunction(ask);
}

// The next raw words of this thread's random stream, not consumed.
py::list rng_next(int count) {
  caffe::rng_t copy(*caffe::caffe_rng());
  py::list words;
  for (int i = 0; i < count; ++i) words.append(copy());
  return words;
}

#ifdef USE_OPENCV
// Rows, columns, channels, and the pixels as hexadecimal digits; nothing if there is no image.
py::tuple pixels_of(const cv::Mat& mat) {
  static const char digits[] = "0123456789abcdef";
  std::string text;
  for (int row = 0; row < mat.rows; ++row) {
    const unsigned char* bytes = mat.ptr<unsigned char>(row);
    for (size_t i = 0; i < mat.cols * mat.elemSize(); ++i) {
      text += digits[bytes[i] >> 4];
      text += digits[bytes[i] & 15];
    }
  }
  return py::make_tuple(mat.rows, mat.cols, mat.channels(), static_cast<int>(mat.elemSize1()), text);
}

py::tuple read_image(const std::string& file, int height, int width, bool color) {
  return pixels_of(caffe::ReadImageToCVMat(file, height, width, color));
}

// mode: -1 as it is, 0 to gray, 1 to color. The Datum comes as hexadecimal digits.
py::tuple decode_datum(const std::string& hex, int mode) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(strtol(hex.substr(i, 2).c_str(), NULL, 16));
  caffe::Datum datum;
  CHECK(datum.ParseFromString(bytes));
  return pixels_of(mode < 0 ? caffe::DecodeDatumToCVMatNative(datum) : caffe::DecodeDatumToCVMat(datum, mode == 1));
}
#endif  // USE_OPENCV

BOOST_PYTHON_MODULE(caffe_inside) {
  py::import("caffe");  // whose classes are used here
  py::def("structure", structure);
  py::def("definition", definition);
  py::def("update", update);
  py::def("learnable", learnable);
  py::def("history", history);
  py::def("solver_state", solver_state);
  py::def("rate", rate);
  py::def("solver_param", solver_param);
  py::def("set_actions", set_actions);
  py::def("rng_next", rng_next);
#ifdef USE_OPENCV
  py::def("read_image", read_image);
  py::def("decode_datum", decode_datum);
#endif
}
