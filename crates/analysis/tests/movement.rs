//! Lines that are moved, against the paper's example and against counting by hand.

use analysis::{Cache, Movement, movement};
use ir::{BufferId, DType, Expr, VarId};
use lower::flat::{AccessInfo, BufferPlace, Code, FlatBuffer, FlatLoop, LaneOffsets, Stmt, Store};

const ELEMENT: u64 = 4;

struct Flat {
    code: Code,
}

impl Flat {
    fn new() -> Flat {
        let code = Code {
            name: "test".into(),
            vars: vec![],
            buffers: vec![],
            params: vec![],
            prepare_params: vec![],
            in_place: vec![],
            kernel: vec![],
            prepare: vec![],
            workspace_bytes: 0,
            worker_workspace_bytes: 0,
            loops: vec![],
            accesses: vec![],
        };
        Flat { code }
    }

    fn buffer(&mut self, elements: i64) -> BufferId {
        self.code.buffers.push(FlatBuffer {
            name: format!("b{}", self.code.buffers.len()),
            dtype: DType::F32,
            elements,
            shape: vec![elements],
            place: BufferPlace::Input,
            spill: None,
        });
        BufferId(self.code.buffers.len() as u32 - 1)
    }

    fn var(&mut self) -> VarId {
        self.code.vars.push(String::new());
        VarId(self.code.vars.len() as u32 - 1)
    }

    fn store(&mut self, buffer: BufferId, offset: Expr, value: Expr) -> Stmt {
        let id = self.code.accesses.len() as u32;
        let mut count = 1;
        value.visit_loads(&mut |_, _| count += 1);
        for _ in 0..count {
            self.code.accesses.push(AccessInfo {
                buffer,
                is_store: true,
                parent: None,
                lanes: 1,
                offsets: LaneOffsets::Uniform,
            });
        }
        Stmt::Store(Store {
            id,
            buffer,
            offset,
            value,
            lane: None,
            mask: None,
            loads: (id + 1..id + count).collect(),
        })
    }

    fn lines(&self, cache_elements: u64, line_elements: u64, threads: u32, shared: bool) -> f64 {
        let cache = Cache {
            bytes: cache_elements * ELEMENT,
            line_bytes: line_elements * ELEMENT,
            shared,
            ways: None,
        };
        movement(&self.code, &self.code.kernel, cache, threads).lines
    }

    /// Of a cache of 32 KiB with 64 sets of 8 lines.
    fn of_sets(&self) -> f64 {
        self.by_sets().lines
    }

    fn by_sets(&self) -> Movement {
        let cache = Cache {
            bytes: 32 << 10,
            line_bytes: 64,
            shared: false,
            ways: Some(8),
        };
        movement(&self.code, &self.code.kernel, cache, 1)
    }
}

fn around(loops: &[(VarId, i64)], body: Vec<Stmt>) -> Vec<Stmt> {
    loops.iter().rev().fold(body, |body, (var, extent)| {
        vec![Stmt::Loop(FlatLoop {
            id: 0,
            var: *var,
            extent: *extent,
            parallel: false,
            body,
        })]
    })
}

/// The paper's Listing 1: two products, fused and tiled.
fn two_products(tiles: i64) -> Flat {
    let (ti, tj, nj, nk, nl) = (8, 8, 128, 128, 128);
    let mut f = Flat::new();
    let ni = ti * tiles;
    let [a, b, c] = [ni * nk, nk * nj, ni * nj].map(|n| f.buffer(n));
    let [d, e] = [nj * nl, ni * nl].map(|n| f.buffer(n));
    let [it, jt, k, i1, j1, l, i2, j2] = std::array::from_fn(|_| f.var());
    let v = Expr::var;
    let at = |row: VarId, column: Expr, width: i64| (v(it) * ti + v(row)) * width + column;
    let j = |inner: VarId| v(jt) * tj + v(inner);
    let sum = Expr::load(c, [at(i1, j(j1), nj)])
        + Expr::load(a, [at(i1, v(k), nk)]) * Expr::load(b, [v(k) * nj + j(j1)]);
    let first = f.store(c, at(i1, j(j1), nj), sum);
    let sum = Expr::load(e, [at(i2, v(l), nl)])
        + Expr::load(c, [at(i2, j(j2), nj)]) * Expr::load(d, [j(j2) * nl + v(l)]);
    let second = f.store(e, at(i2, v(l), nl), sum);
    let mut body = around(&[(k, nk), (i1, ti), (j1, tj)], vec![first]);
    body.extend(around(&[(l, nl), (i2, ti), (j2, tj)], vec![second]));
    f.code.kernel = around(&[(it, tiles), (jt, nj / tj)], body);
    f
}

#[test]
fn the_papers_two_products_move_what_the_paper_says() {
    assert_eq!(two_products(1).lines(8192, 1, 1, true), 35840.0);
    assert_eq!(two_products(8).lines(8192, 1, 1, true), 286_720.0);
}

#[test]
fn what_fits_is_moved_once_and_in_lines() {
    // All five matrices of 8 tiles: 8192 + 16384 + 8192 + 16384 + 8192 elements.
    let f = two_products(8);
    assert_eq!(f.lines(1 << 20, 1, 1, true), 57344.0);
    assert_eq!(f.lines(1 << 20, 16, 1, true), 57344.0 / 16.0);
}

#[test]
fn a_column_touches_a_line_for_each_element() {
    let mut f = Flat::new();
    let (x, y) = (f.buffer(64 * 64), f.buffer(64));
    let i = f.var();
    let s = f.store(y, Expr::var(i), Expr::load(x, [Expr::var(i) * 64]));
    f.code.kernel = around(&[(i, 64)], vec![s]);
    assert_eq!(f.lines(1 << 20, 16, 1, true), 64.0 + 4.0);
}

#[test]
fn windows_that_overlap_are_counted_once() {
    // x[i + r] for 64 values of i and 3 of r: 66 elements.
    let mut f = Flat::new();
    let (x, y) = (f.buffer(66), f.buffer(64));
    let (i, r) = (f.var(), f.var());
    let value = Expr::load(x, [Expr::var(i) + Expr::var(r)]);
    let s = f.store(y, Expr::var(i), value);
    f.code.kernel = around(&[(i, 64), (r, 3)], vec![s]);
    assert_eq!(f.lines(1 << 20, 1, 1, true), 66.0 + 64.0);
}

#[test]
fn a_buffer_leaves_when_what_runs_between_its_uses_does_not_fit() {
    // In every iteration x is read, then 4096 elements of z, then x again.
    let mut f = Flat::new();
    let (x, z, y) = (f.buffer(64), f.buffer(4096), f.buffer(1));
    let [n, i, j, k] = std::array::from_fn(|_| f.var());
    let mut read = |buffer: BufferId, var: VarId| {
        f.store(y, Expr::int(0), Expr::load(buffer, [Expr::var(var)]))
    };
    let (first, between, last) = (read(x, i), read(z, j), read(x, k));
    let mut body = around(&[(i, 64)], vec![first]);
    body.extend(around(&[(j, 4096)], vec![between]));
    body.extend(around(&[(k, 64)], vec![last]));
    f.code.kernel = around(&[(n, 10)], body);
    // It all fits: once. Between the uses too much: x twice and z once, each time.
    assert_eq!(f.lines(8192, 1, 1, true), 64.0 + 4096.0 + 1.0);
    assert_eq!(
        f.lines(2048, 1, 1, true),
        10.0 * (2.0 * 64.0 + 4096.0) + 1.0
    );
}

#[test]
fn a_private_cache_gets_the_part_of_one_thread() {
    let mut f = Flat::new();
    let (x, y) = (f.buffer(1000), f.buffer(1000));
    let i = f.var();
    let s = f.store(y, Expr::var(i), Expr::load(x, [Expr::var(i)]));
    f.code.kernel = around(&[(i, 1000)], vec![s]);
    if let [Stmt::Loop(l)] = &mut f.code.kernel[..] {
        l.parallel = true;
    }
    assert_eq!(f.lines(8192, 1, 3, true), 2000.0);
    assert_eq!(f.lines(8192, 1, 3, false), 2.0 * 334.0);
}

/// `rows` floats, so many apart, read ten times.
fn column(rows: i64, apart: i64) -> Flat {
    let mut f = Flat::new();
    let (x, y) = (f.buffer(rows * apart), f.buffer(1));
    let (n, i) = (f.var(), f.var());
    let value = Expr::load(x, [Expr::var(i) * apart]);
    let s = f.store(y, Expr::int(0), value);
    f.code.kernel = around(&[(n, 10), (i, rows)], vec![s]);
    f
}

#[test]
fn lines_that_share_a_set_push_each_other_out() {
    // 64 lines a page apart are of one set; 16 bytes more and they are of many.
    let moved = column(64, 1024).of_sets();
    assert!((640.0..642.0).contains(&moved), "{moved}");
    assert!(column(64, 1024 + 16).of_sets() < 80.0);
    // Eight of one set fit, but for the line that is written.
    assert!(column(7, 1024).of_sets() < 10.0);
}

#[test]
fn reuse_fades_as_the_cache_fills() {
    // Lines that follow each other: 256, 448, 640 and 1024 of a cache of 512.
    let moved = [256, 448, 640, 1024].map(|lines| column(lines, 16).of_sets() / lines as f64);
    assert!(moved[0] < 1.1 && moved[1] < 2.0, "{moved:?}");
    assert!(moved[2] > 2.0 && moved[3] > 9.9, "{moved:?}");
}

/// 256 rows of 16 lines, so many floats apart, written strip by strip: `lines` of each row, then of the next row.
fn strips(lines: i64, apart: i64) -> Flat {
    let mut f = Flat::new();
    let y = f.buffer(256 * apart);
    let (strip, row, i) = (f.var(), f.var(), f.var());
    let at = Expr::var(row) * apart + Expr::var(strip) * (16 * lines) + Expr::var(i);
    let s = f.store(y, at, Expr::f32(0.0));
    let loops = [(strip, 16 / lines), (row, 256), (i, 16 * lines)];
    f.code.kernel = around(&loops, vec![s]);
    f
}

#[test]
fn stores_into_few_sets_crowd_them() {
    let crowded = |lines, apart| {
        let moved = strips(lines, apart).by_sets();
        assert_eq!(moved.lines, 4096.0);
        moved.crowded
    };
    // Rows a kilobyte apart: a strip of one line comes into 4 sets, one of two lines into 8.
    assert_eq!(crowded(1, 256), 4096.0 * 4.0 / 7.0);
    assert_eq!(crowded(2, 256), 0.0);
    // A line more between rows, and strips come into all sets.
    assert_eq!(crowded(1, 272), 0.0);
    // Rows a page apart: each strip has a set of its own.
    assert_eq!(crowded(1, 1024), 4096.0);
    // What is only read crowds nothing.
    assert_eq!(column(64, 1024).by_sets().crowded, 0.0);
}

#[test]
fn steps_that_fall_on_the_same_sets_count_once() {
    // Tiles of six rows: the next tile falls on the sets of this one.
    let mut f = Flat::new();
    let y = f.buffer(60 * 256);
    let (tile, row) = (f.var(), f.var());
    let at = Expr::var(tile) * (6 * 256) + Expr::var(row) * 256;
    let s = f.store(y, at, Expr::f32(0.0));
    f.code.kernel = around(&[(tile, 10), (row, 6)], vec![s]);
    assert_eq!(f.by_sets().crowded, 60.0 * 4.0 / 7.0);
}
