//! Cycles of hand-made blocks on hand-made machines, and the addresses of real ones.

#[allow(dead_code, reason = "not every test uses all")]
mod support;

use analysis::cycles;
use ir::{Isa, Target};
use llvm::{
    Address, Busy, Control, Decoder, Definition, Instruction, Resource, SchedulingModel, Use,
};
use support::{compiled, product, traces};

fn model(issue_width: u32, units: u32) -> SchedulingModel {
    SchedulingModel {
        cpu: "test".into(),
        name: Some("Test".into()),
        issue_width,
        micro_op_buffer: 128,
        resources: vec![Resource {
            name: "Unit".into(),
            units,
            queue: None,
            members: vec![],
        }],
    }
}

/// Reads and writes registers; 4 cycles, and one of the resource.
fn instruction(reads: &[u32], writes: &[u32]) -> Instruction {
    let uses = reads.iter().map(|unit| Use {
        unit: *unit,
        advances: vec![],
    });
    let definitions = writes.iter().map(|unit| Definition {
        unit: *unit,
        latency: 4,
        write: 0,
    });
    Instruction {
        opcode: "TEST",
        offset: 0,
        size: 4,
        control: Control::Next,
        loads: false,
        stores: false,
        uses_stack: false,
        vector_bits: 0,
        immediate: None,
        address: None,
        in_loop: None,
        of_access: None,
        latency: 4,
        micro_ops: 1,
        retires_in_any_order: false,
        begins_cycle: false,
        ends_cycle: false,
        definitions: definitions.collect(),
        uses: uses.collect(),
        busy: vec![Busy {
            resource: 0,
            from: 0,
            to: 1,
        }],
    }
}

#[test]
fn a_chain_waits_for_every_result() {
    let chain = vec![instruction(&[1], &[1]); 3];
    let c = cycles(&chain, &model(4, 4));
    assert_eq!((c.alone, c.repeated), (12.0, 12.0));
}

#[test]
fn chains_beside_each_other_fill_the_units() {
    // Eight chains of latency 4 keep two units busy, and four chains do not.
    let chains = |n: u32| (0..n).map(|r| instruction(&[r], &[r])).collect::<Vec<_>>();
    assert_eq!(cycles(&chains(8), &model(8, 2)).repeated, 4.0);
    assert_eq!(cycles(&chains(4), &model(8, 2)).repeated, 4.0);
    assert_eq!(cycles(&chains(16), &model(8, 2)).repeated, 8.0);
    // Alone: the last of eight begins in cycle 3 and takes 4.
    assert_eq!(cycles(&chains(8), &model(8, 2)).alone, 7.0);
}

#[test]
fn the_width_of_the_machine_bounds_what_begins() {
    let free: Vec<Instruction> = (0..12).map(|r| instruction(&[], &[r])).collect();
    assert_eq!(cycles(&free, &model(3, 12)).repeated, 4.0);
    let mut wide = free.clone();
    wide.iter_mut().for_each(|i| i.micro_ops = 2);
    assert_eq!(cycles(&wide, &model(4, 12)).repeated, 6.0);
}

#[test]
fn a_register_written_again_is_another_one_where_registers_are_renamed() {
    // A result, its reader, and the next result in the same register.
    let block = [instruction(&[], &[1]), instruction(&[1], &[2])];
    let block = [block.clone(), block].concat();
    let c = cycles(&block, &model(4, 4));
    assert_eq!(c.repeated, 1.0);
    // The paper's machine waits until the reader has begun: 4 + 4 + 4.
    assert_eq!(c.alone, 12.0);
    let in_order = SchedulingModel {
        micro_op_buffer: 1,
        ..model(4, 4)
    };
    assert_eq!(cycles(&block, &in_order).repeated, 8.0);
}

#[test]
fn an_operand_that_may_come_late_shortens_the_chain() {
    let mut i = instruction(&[1], &[1]);
    i.uses[0].advances = vec![(7, 1), (0, 3)];
    assert_eq!(cycles(&[i.clone()], &model(4, 4)).repeated, 1.0);
    i.definitions[0].write = 7;
    assert_eq!(cycles(&[i], &model(4, 4)).repeated, 3.0);
}

#[test]
fn in_order_machines_wait_with_all_that_follows() {
    // A long chain, then independent instructions that could begin before.
    let mut block = vec![instruction(&[1], &[1]); 2];
    block.extend((10..18).map(|r| instruction(&[], &[r])));
    let out_of_order = cycles(&block, &model(2, 8));
    let in_order = SchedulingModel {
        micro_op_buffer: 0,
        ..model(2, 8)
    };
    let in_order = cycles(&block, &in_order);
    // The last of eight begins in cycle 4, or four cycles after the chain's second.
    assert_eq!((out_of_order.alone, in_order.alone), (8.0, 12.0));
}

#[test]
fn an_instruction_enters_only_if_the_queue_of_its_unit_has_room() {
    // A chain of three fills the queue until its last begins in cycle 8.
    let mut block = vec![instruction(&[1], &[1]); 3];
    block.push(instruction(&[], &[2]));
    block[3].latency = 8;
    let mut machine = model(8, 8);
    assert_eq!(cycles(&block, &machine).alone, 12.0);
    machine.resources[0].queue = Some(1);
    assert_eq!(cycles(&block, &machine).alone, 16.0);
}

#[test]
fn in_order_machines_write_results_in_order() {
    // Three cycles are waited, so that the second is not written before the first.
    let mut block = vec![instruction(&[], &[1]), instruction(&[], &[2])];
    block[1].latency = 1;
    block[1].definitions[0].latency = 1;
    let alone = |block: &[Instruction], micro_op_buffer| {
        let model = SchedulingModel {
            micro_op_buffer,
            ..model(2, 8)
        };
        cycles(&[block, &[instruction(&[], &[3])]].concat(), &model).alone
    };
    assert_eq!((alone(&block, 128), alone(&block, 0)), (5.0, 7.0));
    block[1].retires_in_any_order = true;
    assert_eq!(alone(&block, 0), 5.0);
}

#[test]
fn an_instruction_may_be_the_first_or_the_last_of_its_cycle() {
    let in_order = SchedulingModel {
        micro_op_buffer: 0,
        ..model(4, 8)
    };
    let mut block: Vec<Instruction> = (0..4).map(|r| instruction(&[], &[r])).collect();
    assert_eq!(cycles(&block, &in_order).repeated, 1.0);
    (block[1].begins_cycle, block[3].begins_cycle) = (true, true);
    assert_eq!(cycles(&block, &in_order).repeated, 2.0);
    block.iter_mut().for_each(|i| i.begins_cycle = false);
    (block[0].ends_cycle, block[2].ends_cycle) = (true, true);
    assert_eq!(cycles(&block, &in_order).repeated, 2.0);
}

/// Stores register `from` in the stack, or loads it into `to`.
fn of_stack(from: Option<u32>, to: Option<u32>, displacement: i64) -> Instruction {
    const STACK_POINTER: u32 = 99;
    let reads: Vec<u32> = from.into_iter().chain([STACK_POINTER]).collect();
    Instruction {
        stores: from.is_some(),
        loads: to.is_some(),
        address: Some(Address {
            base: Some(STACK_POINTER),
            index: None,
            scale: 1,
            displacement,
            bytes: 8,
        }),
        ..instruction(&reads, to.as_slice())
    }
}

#[test]
fn a_load_waits_for_what_the_block_stored_there() {
    let block = |loaded| {
        let store = of_stack(Some(1), None, 16);
        let load = of_stack(None, Some(2), loaded);
        vec![instruction(&[], &[1]), store, load]
    };
    let alone = |block: &[Instruction]| cycles(block, &model(4, 4)).alone;
    // The store begins in cycle 4, the load in cycle 5.
    assert_eq!(alone(&block(16)), 9.0);
    assert_eq!(alone(&block(20)), 9.0);
    assert_eq!(alone(&block(24)), 8.0);
    // Where the address is another one it waits for nothing.
    let mut moved = block(16);
    moved.insert(2, instruction(&[], &[99]));
    moved[2].definitions[0].latency = 0;
    assert_eq!(alone(&moved), 8.0);
}

#[test]
fn a_sum_in_memory_is_a_chain_between_runs() {
    // Loaded, added to and stored in every run: 4 + 4, and one for the store.
    let load = of_stack(None, Some(1), 0);
    let add = instruction(&[1], &[1]);
    let block = [load, add, of_stack(Some(1), None, 0)];
    assert_eq!(cycles(&block, &model(4, 4)).repeated, 9.0);
    // The same in one instruction.
    let mut in_memory = of_stack(Some(1), Some(2), 0);
    assert_eq!(cycles(&[in_memory.clone()], &model(4, 4)).repeated, 4.0);
    in_memory.address = None;
    assert_eq!(cycles(&[in_memory], &model(4, 4)).repeated, 0.25);
}

#[test]
fn what_is_loaded_from_the_stack_was_stored_there() {
    for isa in Isa::ALL {
        let target = Target::generic(isa);
        let program = product(50, 48, 70);
        let mut loads = 0;
        for trace in traces(&program, &target, 1) {
            let scheduled = schedule::replay(&program, &trace).expect("a legal trace");
            let (_, object) = compiled(&scheduled, &target);
            let decoder = Decoder::new(&target).expect("a known target");
            for f in decoder.functions(&object).expect("the object is read") {
                // Other registers load arguments.
                let vector = |i: &&Instruction| i.uses_stack && i.vector_bits > 0;
                let of_stack = f.instructions.iter().filter(vector);
                let stores: Vec<&Instruction> = of_stack.clone().filter(|i| i.stores).collect();
                for (load, address) in of_stack.filter_map(|i| Some((i, i.address?))) {
                    // Of an array, or where the stack pointer moves.
                    let moves = load
                        .definitions
                        .iter()
                        .any(|d| Some(d.unit) == address.base);
                    if address.index.is_some() || moves {
                        continue;
                    }
                    let there = |i: &&Instruction| i.address.is_some_and(|a| a.overlaps(&address));
                    let (name, at) = (&f.name, load.offset);
                    assert!(
                        !load.loads || stores.iter().any(there),
                        "{isa:?} {name} {at}: {} {address:?}",
                        load.opcode
                    );
                    loads += usize::from(load.loads);
                }
            }
        }
        assert!(loads > 0, "{isa:?}: nothing is loaded from the stack");
    }
}
