#include "train/examples/examples.hpp"

namespace dat {

std::unique_ptr<ExampleSource> make_local_examples(const ExampleParts& parts);
std::unique_ptr<ExampleSource> make_remote_examples(const ExampleParts& parts);

std::unique_ptr<ExampleSource> make_examples(const ExampleParts& parts) {
  // Another source is a line here: the options that ask for it.
  if (parts.options.generators != 0 && parts.ranks.launch().size() > parts.ranks.size())
    return make_remote_examples(parts);
  return make_local_examples(parts);
}

}  // namespace dat
