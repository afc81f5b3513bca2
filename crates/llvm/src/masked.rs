//! Memory accesses of some of the lanes.
//!
//! Each is cut into accesses as wide as the target's vectors, so that LLVM
//! never has to: its type legaliser (22.1, AVX2) loads all lanes of a part
//! whose mask is constantly false, also beyond the end of the memory. The masks
//! are cut such that the optimiser sees these parts and removes them.
//!
//! A store of one lane, known here, is a scalar store: of a vector that was truncated LLVM
//! (22.1, x86) makes it a store of the element before it was, which writes over its
//! neighbours.

use crate::emit::Emitter;
use crate::raw::Value;
use ir::DType;

impl Emitter<'_> {
    /// Lanes of one access among `lanes`, both powers of two.
    pub fn access_lanes(&self, dtype: DType, lanes: u32) -> u32 {
        let bits = self.target.vector_bits.max(128);
        (bits / (8 * dtype.size() as u32)).clamp(1, lanes)
    }

    /// `(first lane, lanes)` of every access.
    fn accesses(&self, dtype: DType, lanes: u32) -> impl Iterator<Item = (u32, u32)> + use<> {
        let each = self.access_lanes(dtype, lanes);
        (0..lanes).step_by(each as usize).map(move |at| (at, each))
    }

    /// Consecutive elements from `address` on in the lanes of `mask`, zero in others.
    pub fn masked_load(&self, dtype: DType, address: Value, mask: Value) -> Value {
        let element = self.memory_type(dtype);
        let load = |(at, lanes): (u32, u32)| {
            let t = self.b.vector_type(element, lanes);
            let address = self
                .b
                .gep_anywhere(element, address, self.index(i64::from(at)));
            let args = &mut [address, self.b.slice(mask, at, lanes), self.b.zero(t)];
            let types = &mut [t, self.b.ptr_type()];
            self.b.intrinsic("llvm.masked.load", types, args)
        };
        let all = self.accesses(dtype, self.b.lanes_of(mask));
        self.b.joined(all.map(load).collect())
    }

    /// One element for each address in the lanes of `mask`, zero in others.
    pub fn masked_gather(&self, dtype: DType, addresses: Value, mask: Value) -> Value {
        let load = |(at, lanes): (u32, u32)| {
            let t = self.b.vector_type(self.memory_type(dtype), lanes);
            let addresses = self.b.slice(addresses, at, lanes);
            let args = &mut [addresses, self.b.slice(mask, at, lanes), self.b.zero(t)];
            let types = &mut [t, self.b.type_of(addresses)];
            self.b.intrinsic("llvm.masked.gather", types, args)
        };
        let all = self.accesses(dtype, self.b.lanes_of(mask));
        self.b.joined(all.map(load).collect())
    }

    /// Consecutive elements from `address` on, in the lanes of `mask`.
    pub fn masked_store(&self, dtype: DType, v: Value, address: Value, mask: Value) {
        let element = self.memory_type(dtype);
        for (at, lanes) in self.accesses(dtype, self.b.lanes_of(mask)) {
            let v = self.b.slice(v, at, lanes);
            let address = self
                .b
                .gep_anywhere(element, address, self.index(i64::from(at)));
            let mask = self.b.slice(mask, at, lanes);
            if let Some(lane) = self.b.only_lane(mask) {
                let address = self
                    .b
                    .gep_anywhere(element, address, self.index(i64::from(lane)));
                let one = self.b.extract(v, lane);
                self.b.store(one, address, dtype.size() as u32);
                continue;
            }
            let args = &mut [v, address, mask];
            let types = &mut [self.b.type_of(v), self.b.ptr_type()];
            self.b.intrinsic("llvm.masked.store", types, args);
        }
    }

    /// One element for each address, in the lanes of `mask`, in lane order.
    pub fn masked_scatter(&self, dtype: DType, v: Value, addresses: Value, mask: Value) {
        for (at, lanes) in self.accesses(dtype, self.b.lanes_of(mask)) {
            let v = self.b.slice(v, at, lanes);
            let addresses = self.b.slice(addresses, at, lanes);
            let args = &mut [v, addresses, self.b.slice(mask, at, lanes)];
            let types = &mut [self.b.type_of(v), self.b.type_of(addresses)];
            self.b.intrinsic("llvm.masked.scatter", types, args);
        }
    }
}
