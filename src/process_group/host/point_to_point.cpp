#include "process_group/host/Call.hpp"

namespace bluefog {
namespace {

Signature messageOf(End end, const at::Tensor& tensor) {
  Signature signature = signatureOf(OpKind::kPointToPoint, tensor);
  signature.end = end;
  return signature;
}

}  // namespace

WorkPtr ProcessGroupBluefog::send(std::vector<at::Tensor>& tensors, int destination, int tag) {
  checkProcess("send");
  const Validate validate(engine_->members(), "send");
  const at::Tensor& tensor = validate.only(tensors, "input");
  validate.rank(destination, "destination");
  validate.tag(tag);
  auto op =
      std::make_shared<MessageOp>(messageOf(End::kSend, tensor), deadline(c10d::kUnsetTimeout));
  auto buffers = std::make_shared<Buffers>(Buffers{{Flat::input(tensor)}, {}});
  addSend(
      engine_->mailbox(), *op,
      {destination, tag, ConstSpans(ConstSpan{buffers->inputs[0].readable(), tensor.nbytes()})});
  op->partners = {destination};
  own(*op, std::move(buffers));
  return post({std::move(op), c10d::OpType::SEND, "bluefog:send", tensors, tensors}, true);
}

WorkPtr ProcessGroupBluefog::recv(std::vector<at::Tensor>& tensors, int source, int tag) {
  checkProcess("recv");
  Validate(engine_->members(), "recv").rank(source, "source");
  return receive(tensors, source, tag, End::kReceive, c10d::OpType::RECV, "bluefog:recv");
}

WorkPtr ProcessGroupBluefog::recvAnysource(std::vector<at::Tensor>& tensors, int tag) {
  checkProcess("recv");
  return receive(tensors, kAnySource, tag, End::kReceiveFromAny, c10d::OpType::RECVANYSOURCE,
                 "bluefog:recvAnySource");
}

WorkPtr ProcessGroupBluefog::receive(std::vector<at::Tensor>& tensors, int source, int tag, End end,
                                     c10d::OpType type, const char* profiling_title) {
  const Validate validate(engine_->members(), name(end));
  const at::Tensor& tensor = validate.only(tensors, "output");
  validate.writable(tensor, "the output");
  validate.tag(tag);
  auto op = std::make_shared<MessageOp>(messageOf(end, tensor), deadline(c10d::kUnsetTimeout));
  auto buffers = std::make_shared<Buffers>(Buffers{{}, {Flat::output(tensor)}});
  auto sender = std::make_shared<int>(source);
  op->tasks.push_back(bluefog::receive(engine_->mailbox(), *op, source, tag,
                                       {buffers->outputs[0].data(), tensor.nbytes()}, sender));
  if (source != kAnySource) {
    op->partners = {source};
  }
  own(*op, std::move(buffers));
  return post({std::move(op), type, profiling_title, tensors, tensors, std::move(sender)}, true);
}

}  // namespace bluefog
