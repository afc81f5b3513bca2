// Machine code as plain tables: a C interface over LLVM's MC layer, its object reader and its
// reader of debug lines, for `machine.rs`, which states what each field means. No C++ type, no
// exception and no LLVM error crosses the interface.

#include "llvm/ADT/APInt.h"
#include "llvm/DebugInfo/DWARF/DWARFContext.h"
#include "llvm/MC/MCAsmInfo.h"
#include "llvm/MC/MCContext.h"
#include "llvm/MC/MCDisassembler/MCDisassembler.h"
#include "llvm/MC/MCInst.h"
#include "llvm/MC/MCInstrAnalysis.h"
#include "llvm/MC/MCInstrDesc.h"
#include "llvm/MC/MCInstrInfo.h"
#include "llvm/MC/MCRegisterInfo.h"
#include "llvm/MC/MCSchedule.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/MCTargetOptions.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/MCA/CustomBehaviour.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/TargetParser/Triple.h"
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

using namespace llvm;

extern "C" void LLVMInitializeRISCVTargetMCA(void);

namespace {

enum Flag : uint32_t {
  Load = 1 << 0,
  Store = 1 << 1,
  Branch = 1 << 2,
  Conditional = 1 << 3,
  Indirect = 1 << 4,
  Call = 1 << 5,
  Return = 1 << 6,
  HasTarget = 1 << 7,
  UsesStack = 1 << 8,
  HasImmediate = 1 << 9,
  HasAddress = 1 << 10,
  RetiresInAnyOrder = 1 << 11,
  BeginsCycle = 1 << 12,
  EndsCycle = 1 << 13,
};

struct TextView {
  const char *data;
  size_t length;
};

struct UseRow {
  uint32_t unit;
  uint32_t first_advance;
  uint32_t advances;
};

struct DefinitionRow {
  uint32_t unit;
  uint32_t latency;
  uint32_t write;
};

struct AdvanceRow {
  uint32_t write;
  int32_t cycles;
};

struct BusyRow {
  uint32_t resource;
  uint32_t from;
  uint32_t to;
};

struct InstructionRow {
  TextView opcode;
  int64_t target;
  int64_t immediate;
  int64_t displacement;
  uint32_t offset;
  uint32_t size;
  uint32_t flags;
  uint32_t vector_bits;
  uint32_t line;
  uint32_t column;
  uint32_t base, index, scale, accessed;
  uint32_t latency;
  uint32_t micro_ops;
  uint32_t first_definition, definitions;
  uint32_t first_use, uses;
  uint32_t first_busy, busy;
};

struct FunctionRow {
  TextView name;
  uint32_t first_instruction, instructions;
};

struct ResourceRow {
  TextView name;
  uint32_t units;
  uint32_t group;
  int32_t buffer;
};

TextView view(StringRef s) { return {s.data(), s.size()}; }

} // namespace

struct tunesmith_decoder {
  Triple triple;
  const Target *target;
  MCTargetOptions options;
  std::unique_ptr<MCRegisterInfo> registers;
  std::unique_ptr<MCAsmInfo> assembly;
  std::unique_ptr<MCInstrInfo> opcodes;
  // What may be decoded, and what times it.
  std::unique_ptr<MCSubtargetInfo> level, tuned;
  std::unique_ptr<MCContext> context;
  std::unique_ptr<MCDisassembler> disassembler;
  std::unique_ptr<MCInstrAnalysis> instructions;
  std::unique_ptr<mca::InstrumentManager> instruments;
  // For each register unit, whether it belongs to a vector register.
  std::vector<bool> in_vector;
  std::string model;
  std::vector<ResourceRow> resources;
  // The first port, and what contains it but not the second unit of 512 bits; empty where LLVM's
  // model has that unit, or the processor has none.
  std::set<uint32_t> first_unit_alone;
};

struct tunesmith_code {
  std::unique_ptr<MemoryBuffer> bytes;
  std::vector<std::string> names;
  std::vector<FunctionRow> functions;
  std::vector<InstructionRow> instructions;
  std::vector<DefinitionRow> definitions;
  std::vector<UseRow> uses;
  std::vector<AdvanceRow> advances;
  std::vector<BusyRow> busy;
};

namespace {

char *message(const Twine &text) { return strdup(text.str().c_str()); }

// The largest register class of each family that holds vectors and floating-point numbers.
bool holds_vectors(StringRef name) {
  static const StringRef names[] = {"VR512", "VR256X", "VR128X", "FPR128", "ZPR", "VR", "FPR64"};
  return is_contained(names, name);
}

// A scheduling model has no name, but the names of its resources begin with one.
std::string model_name(const MCSchedModel &model) {
  if (!model.hasInstrSchedModel() || model.getNumProcResourceKinds() < 2)
    return "";
  StringRef common = model.getProcResource(1)->Name;
  for (unsigned i = 2; i < model.getNumProcResourceKinds(); ++i) {
    StringRef name = model.getProcResource(i)->Name;
    size_t same = 0;
    while (same < std::min(common.size(), name.size()) && common[same] == name[same])
      ++same;
    common = common.take_front(same);
  }
  common.consume_back("Unit");
  return common.str();
}

const MCSchedClassDesc *scheduling(const tunesmith_decoder &d, const MCInst &inst,
                                   const SmallVector<mca::Instrument *> &active) {
  const MCSchedModel &model = d.tuned->getSchedModel();
  if (!model.hasInstrSchedModel())
    return nullptr;
  unsigned index = d.instruments ? d.instruments->getSchedClassID(*d.opcodes, inst, active)
                                 : d.opcodes->get(inst.getOpcode()).getSchedClass();
  const MCSchedClassDesc *found = model.getSchedClassDesc(index);
  while (found->isVariant()) {
    index = d.tuned->resolveVariantSchedClass(index, &inst, d.opcodes.get(),
                                              model.getProcessorID());
    if (index == 0)
      return nullptr;
    found = model.getSchedClassDesc(index);
  }
  return found->isValid() ? found : nullptr;
}

// Intel's server cores that have two units of 512-bit arithmetic, of which LLVM's model has one:
// client cores with the same model (ICX) have one, and Sapphire Rapids' model is like them.
bool has_second_unit(StringRef cpu) {
  static const StringRef names[] = {"icelake-server", "sapphirerapids", "emeraldrapids",
                                    "graniterapids", "graniterapids-d"};
  return is_contained(names, cpu);
}

// What both units do: what lasts as long as a multiplication or more, and no division. Shifts and
// comparisons of integers are of the first port alone on these cores too.
bool on_either_unit(StringRef opcode) {
  static const StringRef starts[] = {
      "VADDP",      "VSUBP",     "VMULP",     "VFMADD",   "VFMSUB",   "VFNMADD",
      "VFNMSUB",    "VMAXP",     "VMINP",     "VSCALEFP", "VGETEXPP", "VGETMANTP",
      "VRANGEP",    "VREDUCEP",  "VRNDSCALEP", "VCVTDQ2PS", "VCVTUDQ2PS", "VCVTPS2DQ",
      "VCVTPS2UDQ", "VCVTTPS2DQ", "VCVTTPS2UDQ", "VPMADD", "VPMUL",    "VPDP"};
  return any_of(starts, [&](StringRef start) { return opcode.starts_with(start); });
}

// The first port and the groups that have it without the port of the second unit. Ports are
// resources without members whose names end in their number: `ICXPort0`, `SPRPort00`.
std::set<uint32_t> first_unit_alone(const MCSchedModel &model) {
  uint32_t first = 0, second = 0;
  for (unsigned i = 1; i < model.getNumProcResourceKinds(); ++i) {
    StringRef name = model.getProcResource(i)->Name;
    if (name.ends_with("Port0") || name.ends_with("Port00"))
      first = i;
    if (name.ends_with("Port5") || name.ends_with("Port05"))
      if (!model.getProcResource(i)->SubUnitsIdxBegin)
        second = i;
  }
  std::set<uint32_t> found;
  if (!first || !second)
    return found;
  found.insert(first);
  for (unsigned i = 1; i < model.getNumProcResourceKinds(); ++i) {
    const MCProcResourceDesc &r = *model.getProcResource(i);
    if (!r.SubUnitsIdxBegin)
      continue;
    ArrayRef<unsigned> members(r.SubUnitsIdxBegin, r.NumUnits);
    if (is_contained(members, first) && !is_contained(members, second))
      found.insert(i);
  }
  return found;
}

// Of what AArch64's opcode loads or stores first, from the opcode's name; 0 for other accesses.
unsigned element_bytes(StringRef name) {
  static const StringRef starts[] = {"LDR", "STR", "LDUR", "STUR", "LDP", "STP"};
  for (StringRef start : starts)
    if (name.consume_front(start)) {
      if (name.starts_with("SB") || name.starts_with("SH") || name.starts_with("SW"))
        name = name.drop_front();
      switch (name.empty() ? 0 : name[0]) {
      case 'Q':
        return 16;
      case 'D':
      case 'X':
        return 8;
      case 'S':
      case 'W':
        return 4;
      case 'H':
        return 2;
      case 'B':
        return 1;
      }
    }
  return 0;
}

struct Reader {
  const tunesmith_decoder &d;
  tunesmith_code &code;
  // State of the vector unit that instructions set for those after them (RISC-V).
  SmallVector<mca::UniqueInstrument> owned;
  SmallVector<mca::Instrument *> active;

  // `whole`: also what the register is part of, since the rest becomes zero.
  void define(unsigned reg, unsigned index, bool whole, const MCSchedClassDesc *timing,
              InstructionRow &out) {
    uint32_t latency = out.latency, write = 0;
    if (timing && index < timing->NumWriteLatencyEntries) {
      const MCWriteLatencyEntry &entry = *d.tuned->getWriteLatencyEntry(timing, index);
      latency = entry.Cycles < 0 ? out.latency : entry.Cycles;
      write = entry.WriteResourceID;
    }
    std::set<uint32_t> units;
    for (MCRegUnit unit : d.registers->regunits(reg))
      units.insert(static_cast<uint32_t>(unit));
    if (whole)
      for (MCPhysReg around : d.registers->superregs(reg))
        // Names of tuples of registers have such a line.
        if (!StringRef(d.registers->getName(around)).contains('_'))
          for (MCRegUnit unit : d.registers->regunits(around))
            units.insert(static_cast<uint32_t>(unit));
    for (uint32_t unit : units) {
      code.definitions.push_back({unit, latency, write});
      ++out.definitions;
    }
  }

  void use(unsigned reg, unsigned index, const MCSchedClassDesc *timing, InstructionRow &out) {
    uint32_t first = code.advances.size();
    if (timing)
      for (const MCReadAdvanceEntry &entry : d.tuned->getReadAdvanceEntries(*timing))
        if (entry.UseIdx == index)
          code.advances.push_back({entry.WriteResourceID, entry.Cycles});
    uint32_t count = code.advances.size() - first;
    for (MCRegUnit unit : d.registers->regunits(reg)) {
      code.uses.push_back({static_cast<uint32_t>(unit), first, count});
      ++out.uses;
    }
  }

  void widen(unsigned reg, int register_class, InstructionRow &out) {
    if (register_class < 0 || !reg)
      return;
    for (MCRegUnit unit : d.registers->regunits(reg))
      if (d.in_vector[static_cast<unsigned>(unit)]) {
        unsigned bits = d.registers->getRegClass(register_class).getSizeInBits();
        out.vector_bits = std::max(out.vector_bits, bits);
        return;
      }
  }

  bool is_stack_pointer(unsigned reg) const {
    StringRef name = d.registers->getName(reg);
    return name == (d.triple.isX86() ? "RSP" : d.triple.isAArch64() ? "SP" : "X2");
  }

  // Whether the second unit of 512 bits may do what LLVM's model gives to the first one alone.
  bool moves(const MCInst &inst) const {
    auto whole = [&](const MCOperand &o) {
      return o.isReg() && StringRef(d.registers->getName(o.getReg())).starts_with("ZMM");
    };
    return !d.first_unit_alone.empty() && any_of(inst, whole) &&
           on_either_unit(d.opcodes->getName(inst.getOpcode()));
  }

  bool breaks_dependency(const MCInst &inst) const {
    APInt mask;
    unsigned cpu = d.tuned->getSchedModel().getProcessorID();
    return d.instructions->isDependencyBreaking(inst, mask, cpu);
  }

  void operands(const MCInst &inst, const MCSchedClassDesc *timing, InstructionRow &out) {
    const MCInstrDesc &desc = d.opcodes->get(inst.getOpcode());
    out.first_definition = code.definitions.size();
    out.first_use = code.uses.size();
    unsigned explicit_definitions = std::min(desc.getNumDefs(), inst.getNumOperands());
    unsigned explicit_uses = inst.getNumOperands() - explicit_definitions;
    bool fresh = breaks_dependency(inst);
    APInt whole(desc.getNumDefs() + desc.implicit_defs().size(), 0);
    d.instructions->clearsSuperRegisters(*d.registers, inst, whole);
    for (unsigned i = 0; i < inst.getNumOperands(); ++i) {
      const MCOperand &operand = inst.getOperand(i);
      if (operand.isImm() && !(out.flags & HasImmediate)) {
        out.immediate = operand.getImm();
        out.flags |= HasImmediate;
      }
      if (!operand.isReg() || !operand.getReg())
        continue;
      unsigned reg = operand.getReg();
      bool described = i < desc.getNumOperands();
      widen(reg, described ? d.opcodes->getOpRegClassID(desc.operands()[i], 0) : -1, out);
      if (is_stack_pointer(reg))
        out.flags |= UsesStack;
      if (d.registers->isConstant(reg))
        continue;
      if (i < explicit_definitions)
        define(reg, i, whole[i], timing, out);
      else if (!fresh)
        use(reg, i - explicit_definitions, timing, out);
    }
    unsigned index = explicit_definitions;
    for (MCPhysReg reg : desc.implicit_defs()) {
      define(reg, index, whole[index], timing, out);
      ++index;
    }
    index = explicit_uses;
    for (MCPhysReg reg : desc.implicit_uses()) {
      if (is_stack_pointer(reg))
        out.flags |= UsesStack;
      use(reg, index++, timing, out);
    }
  }

  // The first unit of a register, all ones if there is none that is ever written.
  uint32_t first_unit(const MCOperand &operand) const {
    if (!operand.isReg() || !operand.getReg() || d.registers->isConstant(operand.getReg()))
      return ~0u;
    return static_cast<uint32_t>(*d.registers->regunits(operand.getReg()).begin());
  }

  // x86 has five operands: base, scale, index, displacement and segment.
  void address_of_x86(const MCInst &inst, const MCInstrDesc &desc, InstructionRow &out) {
    unsigned operands = std::min<unsigned>(inst.getNumOperands(), desc.getNumOperands());
    for (unsigned i = 0; i + 4 < operands; ++i)
      if (desc.operands()[i].OperandType == MCOI::OPERAND_MEMORY) {
        const MCOperand &base = inst.getOperand(i), &displacement = inst.getOperand(i + 3);
        bool of_code = base.getReg() && StringRef(d.registers->getName(base.getReg())) == "RIP";
        if (!displacement.isImm() || of_code)
          return;
        out.base = first_unit(base);
        out.scale = inst.getOperand(i + 1).getImm();
        out.index = first_unit(inst.getOperand(i + 2));
        out.displacement = displacement.getImm();
        out.accessed = 1;
        out.flags |= HasAddress;
        return;
      }
  }

  // The base comes after the data: the first stack pointer or 64-bit register of AArch64 that may
  // be one, and the second operand of RISC-V. An index or a displacement may follow.
  void address_of_others(const MCInst &inst, const MCInstrDesc &desc, InstructionRow &out) {
    unsigned at = std::max(1u, desc.getNumDefs());
    unsigned operands = std::min<unsigned>(inst.getNumOperands(), desc.getNumOperands());
    auto may_be_base = [&](unsigned i) {
      int group = d.opcodes->getOpRegClassID(desc.operands()[i], 0);
      return group >= 0 && d.registers->getRegClassName(&d.registers->getRegClass(group)) ==
                               StringRef("GPR64sp");
    };
    while (d.triple.isAArch64() && at < operands && !may_be_base(at))
      ++at;
    if (at >= operands || !inst.getOperand(at).isReg())
      return;
    out.base = first_unit(inst.getOperand(at));
    out.index = ~0u;
    for (unsigned i = at + 1; i < operands; ++i) {
      const MCOperand &operand = inst.getOperand(i);
      if (operand.isReg())
        out.index = first_unit(operand);
      else if (operand.isImm() && out.index == ~0u)
        out.displacement = operand.getImm();
      else if (operand.isImm())
        out.scale = 2 * out.scale + operand.getImm();
    }
    StringRef name = d.opcodes->getName(inst.getOpcode());
    unsigned element = element_bytes(name);
    bool pair = name.starts_with("LDP") || name.starts_with("STP");
    if (element && (pair || name.ends_with("ui")))
      out.displacement *= element;
    if (name.ends_with("post"))
      out.displacement = 0;
    out.accessed = std::max(1u, element * (pair ? 2 : 1));
    out.flags |= HasAddress;
  }

  // `relocated`: a linker changes the instruction's bytes.
  void read(const MCInst &inst, uint64_t address, bool relocated, InstructionRow &out) {
    const MCInstrDesc &desc = d.opcodes->get(inst.getOpcode());
    auto flag = [&](bool set, Flag flag) { out.flags |= set ? uint32_t(flag) : 0; };
    const MCInstrAnalysis &a = *d.instructions;
    out.opcode = view(d.opcodes->getName(inst.getOpcode()));
    flag(desc.mayLoad(), Load);
    flag(desc.mayStore(), Store);
    flag(a.isBranch(inst), Branch);
    flag(a.isConditionalBranch(inst), Conditional);
    flag(a.isIndirectBranch(inst), Indirect);
    flag(a.isCall(inst), Call);
    flag(a.isReturn(inst), Return);
    uint64_t target = 0;
    if (!relocated && a.evaluateBranch(inst, address, out.size, target)) {
      out.target = static_cast<int64_t>(target - address) + out.offset;
      out.flags |= HasTarget;
    }
    if (d.instruments) {
      auto set = d.instruments->createInstruments(inst);
      if (!set.empty()) {
        owned = std::move(set);
        active.clear();
        for (auto &instrument : owned)
          active.push_back(instrument.get());
      }
    }
    const MCSchedClassDesc *timing = scheduling(d, inst, active);
    out.first_busy = code.busy.size();
    if (desc.mayLoad() || desc.mayStore()) {
      if (d.triple.isX86())
        address_of_x86(inst, desc, out);
      else
        address_of_others(inst, desc, out);
    }
    if (timing) {
      flag(timing->RetireOOO, RetiresInAnyOrder);
      flag(timing->BeginGroup, BeginsCycle);
      flag(timing->EndGroup, EndsCycle);
      out.latency = MCSchedModel::computeInstrLatency(*d.tuned, *timing);
      out.micro_ops = timing->NumMicroOps;
      // The groups that are left have both ports.
      bool moved = moves(inst);
      for (auto *entry = d.tuned->getWriteProcResBegin(timing),
                *end = d.tuned->getWriteProcResEnd(timing);
           entry != end; ++entry)
        if (!moved || !d.first_unit_alone.count(entry->ProcResourceIdx))
          code.busy.push_back(
              {entry->ProcResourceIdx, entry->AcquireAtCycle, entry->ReleaseAtCycle});
    } else {
      out.latency = 1;
      out.micro_ops = 1;
    }
    out.busy = code.busy.size() - out.first_busy;
    operands(inst, timing, out);
  }
};

struct Row {
  uint64_t address;
  // The end of a sequence comes before the beginning of the next one.
  bool begins;
  uint32_t line, column;
};

struct Section {
  ArrayRef<uint8_t> bytes;
  // In order of addresses.
  std::vector<Row> rows;
  // Offsets of what a linker changes.
  std::set<uint64_t> relocations;
};

using Sections = std::map<uint64_t, Section>;

void add_debug_lines(const object::ObjectFile &object, Sections &sections) {
  auto ignore = [](Error error) { consumeError(std::move(error)); };
  auto dwarf = DWARFContext::create(object, DWARFContext::ProcessDebugRelocations::Process,
                                    nullptr, "", ignore, ignore);
  for (const auto &unit : dwarf->compile_units())
    if (const auto *table = dwarf->getLineTableForUnit(unit.get()))
      for (const auto &row : table->Rows)
        sections[row.Address.SectionIndex].rows.push_back(
            {row.Address.Address, !row.EndSequence, row.EndSequence ? 0 : row.Line, row.Column});
  for (auto &[index, section] : sections)
    std::stable_sort(section.rows.begin(), section.rows.end(), [](const Row &a, const Row &b) {
      return std::tie(a.address, a.begins) < std::tie(b.address, b.begins);
    });
}

// Text of an error, or null.
char *read_sections(const object::ELFObjectFileBase &object, Sections &sections) {
  for (const object::SectionRef section : object.sections()) {
    if (section.isText()) {
      auto contents = section.getContents();
      if (!contents)
        return message("the object cannot be read: " + toString(contents.takeError()));
      sections[section.getIndex()].bytes =
          ArrayRef<uint8_t>(reinterpret_cast<const uint8_t *>(contents->data()), contents->size());
    }
    auto changed = section.getRelocatedSection();
    if (!changed)
      return message("the object cannot be read: " + toString(changed.takeError()));
    if (*changed != object.section_end())
      for (const object::RelocationRef relocation : section.relocations())
        sections[(*changed)->getIndex()].relocations.insert(relocation.getOffset());
  }
  add_debug_lines(object, sections);
  return nullptr;
}

// Appends the function at `start` of `section`; an error's text if its bytes are no instructions.
char *read_function(const tunesmith_decoder &d, const Section &section, uint64_t start,
                    uint64_t size, const std::string &name, tunesmith_code &code) {
  FunctionRow function = {view(name), static_cast<uint32_t>(code.instructions.size()), 0};
  Reader reader{d, code, {}, {}};
  for (uint64_t at = start; at < start + size;) {
    MCInst inst;
    uint64_t length = 0;
    auto status = d.disassembler->getInstruction(
        inst, length, section.bytes.slice(at, start + size - at), at, nulls());
    if (status != MCDisassembler::Success || length == 0)
      return message("no instruction of " + d.triple.str() + " is at byte " + Twine(at - start) +
                     " of function `" + name + "`");
    InstructionRow out = {};
    out.offset = at - start;
    out.size = length;
    auto changed = section.relocations.lower_bound(at);
    bool relocated = changed != section.relocations.end() && *changed < at + length;
    reader.read(inst, at, relocated, out);
    const std::vector<Row> &rows = section.rows;
    if (!rows.empty()) {
      auto after = std::upper_bound(rows.begin(), rows.end(), at,
                                    [](uint64_t at, const Row &row) { return at < row.address; });
      if (after != rows.begin()) {
        out.line = std::prev(after)->line;
        out.column = std::prev(after)->column;
      }
    }
    code.instructions.push_back(out);
    at += length;
  }
  function.instructions = code.instructions.size() - function.first_instruction;
  code.functions.push_back(function);
  return nullptr;
}

char *read_object(const tunesmith_decoder &d, tunesmith_code &code) {
  auto opened = object::ObjectFile::createELFObjectFile(code.bytes->getMemBufferRef());
  if (!opened)
    return message("the object cannot be read: " + toString(opened.takeError()));
  const auto *object = cast<object::ELFObjectFileBase>(opened->get());
  if (object->getArch() != d.triple.getArch())
    return message("the object is of another architecture than " + d.triple.str());
  Sections sections;
  if (char *error = read_sections(*object, sections))
    return error;
  // Names stay where they are: functions point at them.
  code.names.reserve(std::distance(object->symbol_begin(), object->symbol_end()));
  for (const object::ELFSymbolRef symbol : object->symbols()) {
    auto type = symbol.getType();
    auto section = symbol.getSection();
    auto name = symbol.getName();
    auto address = symbol.getAddress();
    bool known = bool(type) && bool(section) && bool(name) && bool(address);
    consumeError(type.takeError());
    consumeError(section.takeError());
    consumeError(name.takeError());
    consumeError(address.takeError());
    if (!known || *type != object::SymbolRef::ST_Function || *section == object->section_end())
      continue;
    const Section &code_section = sections[(*section)->getIndex()];
    uint64_t size = code_section.bytes.size();
    if (*address > size || symbol.getSize() > size - *address)
      return message("function `" + *name + "` lies outside its section");
    code.names.push_back(name->str());
    char *error =
        read_function(d, code_section, *address, symbol.getSize(), code.names.back(), code);
    if (error)
      return error;
  }
  return nullptr;
}

} // namespace

extern "C" {

void tunesmith_free_text(char *text) { free(text); }

void tunesmith_decoder_free(tunesmith_decoder *d) { delete d; }

tunesmith_decoder *tunesmith_decoder_new(const char *triple, const char *level,
                                         const char *features, const char *tuned, char **error) {
  LLVMInitializeRISCVTargetMCA();
  auto d = std::make_unique<tunesmith_decoder>();
  auto fail = [&](const Twine &text) -> tunesmith_decoder * {
    *error = message(text);
    return nullptr;
  };
  d->triple = Triple(triple);
  std::string text;
  d->target = TargetRegistry::lookupTarget(d->triple, text);
  if (!d->target)
    return fail(text);
  d->registers.reset(d->target->createMCRegInfo(d->triple));
  d->opcodes.reset(d->target->createMCInstrInfo());
  d->level.reset(d->target->createMCSubtargetInfo(d->triple, level, features));
  d->tuned.reset(d->target->createMCSubtargetInfo(d->triple, level, features));
  if (!d->registers || !d->opcodes || !d->level || !d->tuned)
    return fail("this LLVM cannot decode its machine code");
  if (!d->level->isCPUStringValid(tuned))
    return fail("no processor of this architecture is called `" + Twine(tuned) + "`");
  d->tuned.reset(d->target->createMCSubtargetInfo(d->triple, tuned, ""));
  d->assembly.reset(d->target->createMCAsmInfo(*d->registers, d->triple, d->options));
  if (!d->assembly)
    return fail("this LLVM cannot decode its machine code");
  d->context = std::make_unique<MCContext>(d->triple, d->assembly.get(), d->registers.get(),
                                           d->level.get());
  d->disassembler.reset(d->target->createMCDisassembler(*d->level, *d->context));
  d->instructions.reset(d->target->createMCInstrAnalysis(d->opcodes.get()));
  if (!d->disassembler || !d->instructions)
    return fail("this LLVM cannot decode its machine code");
  d->instruments.reset(d->target->createInstrumentManager(*d->tuned, *d->opcodes));
  d->in_vector.resize(d->registers->getNumRegUnits());
  for (const MCRegisterClass &group : d->registers->regclasses())
    if (holds_vectors(d->registers->getRegClassName(&group)))
      for (MCPhysReg reg : group)
        for (MCRegUnit unit : d->registers->regunits(reg))
          d->in_vector[static_cast<unsigned>(unit)] = true;
  const MCSchedModel &model = d->tuned->getSchedModel();
  d->model = model_name(model);
  if (has_second_unit(tuned))
    d->first_unit_alone = first_unit_alone(model);
  if (model.hasInstrSchedModel())
    for (unsigned i = 0; i < model.getNumProcResourceKinds(); ++i) {
      const MCProcResourceDesc &r = *model.getProcResource(i);
      d->resources.push_back({view(r.Name), r.NumUnits, r.SuperIdx, r.BufferSize});
    }
  return d.release();
}

// The features that a processor has by its name, with commas, for `tunesmith_free_text`; null if there
// is none of that name.
char *tunesmith_features_of(const char *triple, const char *cpu) {
  std::string text;
  Triple parsed(triple);
  const Target *target = TargetRegistry::lookupTarget(parsed, text);
  std::unique_ptr<MCSubtargetInfo> plain, named;
  if (target)
    plain.reset(target->createMCSubtargetInfo(parsed, "", ""));
  if (!plain || !plain->isCPUStringValid(cpu))
    return nullptr;
  named.reset(target->createMCSubtargetInfo(parsed, cpu, ""));
  std::string all;
  for (const SubtargetFeatureKV &feature : named->getEnabledProcessorFeatures())
    all += std::string(feature.Key) + ",";
  return message(all);
}

TextView tunesmith_decoder_model(const tunesmith_decoder *d) { return view(d->model); }

uint32_t tunesmith_decoder_issue_width(const tunesmith_decoder *d) {
  return d->tuned->getSchedModel().IssueWidth;
}

uint32_t tunesmith_decoder_buffer(const tunesmith_decoder *d) {
  return d->tuned->getSchedModel().MicroOpBufferSize;
}

const ResourceRow *tunesmith_decoder_resources(const tunesmith_decoder *d, size_t *count) {
  *count = d->resources.size();
  return d->resources.data();
}

// The members of a resource that is a group; none for other resources.
const uint32_t *tunesmith_decoder_members(const tunesmith_decoder *d, uint32_t resource,
                                          size_t *count) {
  const MCProcResourceDesc &r = *d->tuned->getSchedModel().getProcResource(resource);
  *count = r.SubUnitsIdxBegin ? r.NumUnits : 0;
  return r.SubUnitsIdxBegin;
}

void tunesmith_code_free(tunesmith_code *code) { delete code; }

tunesmith_code *tunesmith_code_read(const tunesmith_decoder *d, const char *bytes, size_t length,
                                    char **error) {
  auto code = std::make_unique<tunesmith_code>();
  code->bytes = MemoryBuffer::getMemBufferCopy(StringRef(bytes, length));
  *error = read_object(*d, *code);
  return *error ? nullptr : code.release();
}

#define TABLE(name, type)                                                                          \
  const type *tunesmith_code_##name(const tunesmith_code *code, size_t *count) {                   \
    *count = code->name.size();                                                                    \
    return code->name.data();                                                                      \
  }
TABLE(functions, FunctionRow)
TABLE(instructions, InstructionRow)
TABLE(definitions, DefinitionRow)
TABLE(uses, UseRow)
TABLE(advances, AdvanceRow)
TABLE(busy, BusyRow)
}
