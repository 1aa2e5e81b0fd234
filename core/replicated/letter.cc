#include "core/replicated/letter.h"

namespace covey {

Bytes Letter::Encode() const {
  Writer writer;
  writer.Put(static_cast<uint8_t>(kind));
  for (const uint64_t word : {attempt, executed, known, version, kept, number, standing, applied,
                              tries, over, content.first, content.last, content.count,
                              content.arrived, consumed, met, need, ask, ask_version})
    writer.Put(word);
  writer.Put(static_cast<int64_t>(max_wait));
  writer.Put(static_cast<uint8_t>((left ? 1 : 0) | (quiet ? 2 : 0) | (is_void ? 4 : 0) |
                                  (is_cut_off ? 8 : 0)));
  for (const std::vector<uint64_t>* words : {&list, &missing, &needs, &mets, &silences})
    writer.PutList(*words);
  writer.PutList(hypers);
  Bytes bytes = writer.Take();
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

bool Letter::Decode(std::span<const std::byte> bytes, Letter* letter) {
  Reader reader(bytes);
  const auto kind = reader.Get<uint8_t>();
  letter->kind = static_cast<LetterKind>(kind);
  Contribution* content = &letter->content;
  for (uint64_t* word :
       {&letter->attempt, &letter->executed, &letter->known, &letter->version, &letter->kept,
        &letter->number, &letter->standing, &letter->applied, &letter->tries, &letter->over,
        &content->first, &content->last, &content->count, &content->arrived, &letter->consumed,
        &letter->met, &letter->need, &letter->ask, &letter->ask_version})
    *word = reader.Get<uint64_t>();
  letter->max_wait = reader.Get<int64_t>();
  const auto flags = reader.Get<uint8_t>();
  letter->left = (flags & 1) != 0;
  letter->quiet = (flags & 2) != 0;
  letter->is_void = (flags & 4) != 0;
  letter->is_cut_off = (flags & 8) != 0;
  for (std::vector<uint64_t>* words :
       {&letter->list, &letter->missing, &letter->needs, &letter->mets, &letter->silences})
    *words = reader.GetList<uint64_t>();
  letter->hypers = reader.GetList<double>();
  const bool known = kind >= static_cast<uint8_t>(LetterKind::kAsk) &&
                     kind <= static_cast<uint8_t>(LetterKind::kWord);
  if (!reader.ok() || !known) return false;
  letter->body.assign(reader.rest().begin(), reader.rest().end());
  return true;
}

}  // namespace covey
