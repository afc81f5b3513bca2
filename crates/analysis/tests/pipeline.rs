//! Cycles of hand-made blocks on hand-made machines.

use analysis::cycles;
use llvm::{Busy, Control, Definition, Instruction, Resource, SchedulingModel, Use};

fn model(issue_width: u32, units: u32) -> SchedulingModel {
    SchedulingModel {
        cpu: "test".into(),
        name: Some("Test".into()),
        issue_width,
        micro_op_buffer: 128,
        resources: vec![Resource {
            name: "Unit".into(),
            units,
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
        in_loop: None,
        of_access: None,
        latency: 4,
        micro_ops: 1,
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
    // The last of eight begins in cycle 4, or three cycles after the chain's second.
    assert_eq!((out_of_order.alone, in_order.alone), (8.0, 11.0));
}
