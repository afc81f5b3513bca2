//! Attention of one new token with a cache, which has room for rows that are not there yet if the application shares its
//! memory.

use crate::attention::{Weighting, attend, heads, joined_heads, permission};
use crate::fused::{heads_attend, unpacked, with_bias};
use crate::grouped::count;
use crate::indexing::counting;
use crate::node::{Imported, NodeImport, Problem};
use graph::ValueId;
use graph::ops::{Binary, Op};
use tensor::DType;

/// What the operands say besides: that there is one beam, which reads its own rows.
fn check_beams(n: &mut NodeImport) -> Result<(), Problem> {
    let beams = n.constant_scalar(8, "beam width")?.unwrap_or(1.0);
    if beams != 1.0 || n.optional(9).is_some() {
        return Problem::unsupported(
            "it reads the rows of other beams (cache_indirection); export the decoder without beam search",
        );
    }
    if n.attributes.flag("output_qk", false)? && n.wants(3) {
        return Problem::unsupported("its weights are read (output_qk)");
    }
    Ok(())
}

pub(crate) fn masked_attention(n: &mut NodeImport) -> Imported {
    let all = count(n, "num_heads")?;
    check_beams(n)?;
    let shares = n.attributes.flag("past_present_share_buffer", false)?;
    let (masks, past) = (
        [n.optional(3), n.optional(4)],
        [n.optional(5), n.optional(6)],
    );
    let qkv = [Some(n.input(0)?), n.optional(1), n.optional(2)];
    let qkv = unpacked(n, qkv, all)?;
    let bias = n.optional(10);
    let qkv = with_bias(n, qkv, bias)?;
    match (shares, past) {
        (true, [Some(k), Some(v)]) => with_room(n, qkv, all, masks, [k, v]),
        _ => {
            n.optional(7);
            Ok(heads_attend(n, qkv, all, masks, past)?.to_vec())
        }
    }
}

/// The new row stands behind those that a cache has; the rows behind it are not looked at.
fn with_room(
    n: &mut NodeImport,
    [q, k, v]: [ValueId; 3],
    count: usize,
    [mask, added]: [Option<ValueId>; 2],
    past: [ValueId; 2],
) -> Imported {
    if mask.is_some() {
        return Problem::unsupported("it has a mask, and its cache has room for more rows");
    }
    let q = heads(n, q, count)?;
    let mut kv = [heads(n, k, count)?, heads(n, v, count)?];
    let (own, room) = (n.shape(kv[0]), n.shape(past[0]));
    let size = n.shape(q)[3];
    if own.len() != 4 || own[2] != 1 || room.len() != 4 || n.shape(q)[2] != 1 {
        return Problem::unsupported(format!(
            "a new row {} for a cache {}",
            n.ty(kv[0]),
            n.ty(past[0])
        ));
    }
    let length = n.input(7)?;
    let length = n.cast(length, DType::I64)?;
    let length = n.reshape(length, vec![])?;
    let row = counting(n, room[2], 2, 4, 0)?;
    let is_new = n.binary(Binary::Equal, row, length)?;
    for (new, past) in kv.iter_mut().zip(past) {
        *new = n.emit(Op::Where, &[is_new, *new, past])?;
    }
    let column = counting(n, room[2], 3, 4, 0)?;
    let allowed = n.binary(Binary::LessOrEqual, column, length)?;
    let dtype = n.dtype(q);
    let mut bias = permission(n, allowed, dtype)?;
    if let Some(added) = added {
        bias = n.binary(Binary::Add, bias, added)?;
    }
    let scale = match n.attributes.float("scale", 0.0)? {
        0.0 => 1.0 / (size as f64).sqrt(),
        scale => f64::from(scale),
    };
    n.attributes.ignore(&["mask_filter_value"]);
    let how = Weighting {
        scale,
        softcap: 0.0,
        bias: Some(bias),
        may_mask_rows: false,
        precision: None,
        shown: None,
    };
    let (y, _) = attend(n, [q, kv[0], kv[1]], &how)?;
    Ok(vec![joined_heads(n, y)?, kv[0], kv[1]])
}
