//! Products of matrices in rows: C [m, n] = A [m, k] B [k, n], all f32.

use bestof::{BestOf, Options, Unfit};
use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

/// m, n and k.
type Size = [usize; 3];
type Product = fn(Size, &[f32], &[f32], &mut [f32]);

/// Rows of C are sums of rows of B: no library, no call, and no packing.
fn own(size: Size, a: &[f32], b: &[f32], c: &mut [f32]) {
    let [_, n, k] = size;
    for (row, out) in a.chunks(k).zip(c.chunks_mut(n)) {
        out.fill(0.0);
        for (factor, line) in row.iter().zip(b.chunks(n)) {
            for (sum, x) in out.iter_mut().zip(line) {
                *sum += factor * x;
            }
        }
    }
}

fn by_matrixmultiply([m, n, k]: Size, a: &[f32], b: &[f32], c: &mut [f32]) {
    assert!(a.len() == m * k && b.len() == k * n && c.len() == m * n);
    let [row_a, row_b, row_c] = [k as isize, n as isize, n as isize];
    // SAFETY: The lengths are those of row-major matrices with these strides.
    unsafe {
        matrixmultiply::sgemm(
            m,
            k,
            n,
            1.0,
            a.as_ptr(),
            row_a,
            1,
            b.as_ptr(),
            row_b,
            1,
            0.0,
            c.as_mut_ptr(),
            row_c,
            1,
        );
    }
}

fn by_faer([m, n, k]: Size, a: &[f32], b: &[f32], c: &mut [f32]) {
    let a = MatRef::from_row_major_slice(a, m, k);
    let b = MatRef::from_row_major_slice(b, k, n);
    let c = MatMut::from_row_major_slice_mut(c, m, n);
    matmul(c, Accum::Replace, a, b, 1.0, Par::Seq);
}

pub fn run() -> Result<(), Unfit> {
    let alternatives: [(&str, Product); 3] = [
        ("own loops", own),
        ("matrixmultiply", by_matrixmultiply),
        ("faer", by_faer),
    ];
    let selector = BestOf::new("product", alternatives, Options::default())?;
    let sizes: [Size; 6] = [
        [4, 4, 4],
        [16, 16, 16],
        [64, 64, 64],
        [1, 1024, 1024],
        [512, 512, 512],
        [2048, 8, 64],
    ];
    super::compare(
        "Products [m, n, k]",
        &sizes,
        &alternatives,
        &selector,
        |size| {
            let (size, [m, n, k]) = (*size, *size);
            let (a, b) = (vec![1.0; m * k], vec![0.5; k * n]);
            let mut c = vec![0.0; m * n];
            Box::new(move |product| {
                product(size, &a, &b, &mut c);
                assert!((c[m * n - 1] - 0.5 * k as f32).abs() < 1e-3 * k as f32);
            })
        },
    );
    Ok(())
}
