// See serialize.h.
#include "program/serialize.h"

#include "program/fields.h"
#include "program/validate.h"

namespace sardonyx {

std::string serialize(const Program& program) {
  ExprTable table;
  Writer body(table), head(table);
  body(program);
  head(program.symbol_names, table.nodes());
  return head.out() + body.out();
}

std::string serialize_without_code(const Program& p) {
  ExprTable table;
  Writer body(table), head(table);
  body(p.target, p.buffers, p.kernels, p.init, p.main, p.input_names, p.output_names);
  head(p.symbol_names, table.nodes());
  return head.out() + body.out();
}

std::shared_ptr<Program> deserialize(std::span<const std::byte> bytes, std::vector<Data> constants) {
  auto program = std::make_shared<Program>();
  Reader reader(bytes, nullptr);
  std::vector<TableNode> nodes;
  reader(program->symbol_names, nodes);
  TableReader table(program->symbol_names);
  for (const TableNode& n : nodes) table.add(n);
  reader.set_table(&table);
  reader(*program);
  if (!reader.at_end()) Reader::damaged("something follows its end");
  program->constants = std::move(constants);
  validate(*program);
  return program;
}

}  // namespace sardonyx
