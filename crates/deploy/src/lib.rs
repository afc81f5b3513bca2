//! The C interface of the runtime (`include/tunesmith_runtime.h`), and the program `tunesmith-run`: what a machine without a
//! compiler needs to run compiled models.
//!
//! Owns handles and texts for C. Promises that nothing unwinds into C, and that what a caller can get wrong is an error
//! with a text, but for pointers that are none.

mod infer;
mod selector;

pub use infer::{
    ResultsC, ValueC, tunesmith_infer, tunesmith_result, tunesmith_results_count,
    tunesmith_results_free,
};
pub use selector::{
    CallC, SelectorC, SettingsC, tunesmith_selector_begin, tunesmith_selector_defaults,
    tunesmith_selector_end, tunesmith_selector_free, tunesmith_selector_load,
    tunesmith_selector_new, tunesmith_selector_report, tunesmith_selector_save,
    tunesmith_text_free,
};

use runtime::{Model, Pool, RunError, Variants};
use std::cell::RefCell;
use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr::null;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tensor::DType;

/// `tunesmith_status`.
pub type Status = i32;
const OK: Status = 0;
const BAD_ARGUMENT: Status = 1;
const CANNOT_LOAD: Status = 2;
const CANNOT_RUN: Status = 3;
const BUSY: Status = 4;
const PANICKED: Status = 5;

/// `tunesmith_tensor`.
#[repr(C)]
pub struct TensorC {
    name: *const c_char,
    ty: i32,
    rank: usize,
    shape: *const usize,
    bytes: usize,
}

/// `tunesmith_model`.
pub struct ModelC {
    /// Touched by who holds `busy` only.
    model: UnsafeCell<Model>,
    busy: AtomicBool,
    name: CString,
    /// Of each variant.
    texts: Vec<Texts>,
}

/// What a variant is called, and what its tensors are called.
struct Texts {
    label: CString,
    inputs: Vec<CString>,
    outputs: Vec<CString>,
}

type Fallible<T> = Result<T, (Status, String)>;

thread_local! {
    static ERROR: RefCell<CString> = RefCell::default();
}

/// A text for C, which ends at a zero.
fn text(of: &str) -> CString {
    CString::new(of.replace('\0', " ")).expect("zeros were replaced")
}

/// Runs what a call asks for; keeps the text of its failure for this thread.
fn status(call: impl FnOnce() -> Fallible<()>) -> Status {
    let (status, why) = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => return OK,
        Ok(Err(failed)) => failed,
        Err(payload) => {
            let said = payload.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| payload.downcast_ref::<&str>().copied());
            (PANICKED, said.unwrap_or("no reason is known").to_string())
        }
    };
    ERROR.with(|e| *e.borrow_mut() = text(&why));
    status
}

fn bad<T>(why: impl Into<String>) -> Fallible<T> {
    Err((BAD_ARGUMENT, why.into()))
}

/// A text of the caller.
///
/// # Safety
/// It is null or ends with a zero.
unsafe fn words<'a>(of: *const c_char, what: &str) -> Fallible<&'a str> {
    if of.is_null() {
        return bad(format!("{what} is a null pointer"));
    }
    // SAFETY: see above.
    let text = unsafe { CStr::from_ptr(of) };
    text.to_str()
        .or_else(|_| bad(format!("{what} is not UTF-8")))
}

/// The model of a handle.
///
/// # Safety
/// The handle is null or of a model that was loaded and not freed.
unsafe fn handle<'a>(model: *const ModelC) -> Fallible<&'a ModelC> {
    // SAFETY: see above.
    match unsafe { model.as_ref() } {
        Some(model) => Ok(model),
        None => bad("the model is a null pointer"),
    }
}

impl ModelC {
    /// Hands the model to one call at a time.
    fn with<T>(&self, call: impl FnOnce(&mut Model) -> Fallible<T>) -> Fallible<T> {
        /// Lets others in, also when the call panics.
        struct Entered<'a>(&'a AtomicBool);
        impl Drop for Entered<'_> {
            fn drop(&mut self) {
                self.0.store(false, Ordering::Release);
            }
        }
        if self.busy.swap(true, Ordering::Acquire) {
            return Err((BUSY, "another thread is in a call with this model".into()));
        }
        let _entered = Entered(&self.busy);
        // SAFETY: nobody else has passed the flag.
        call(unsafe { &mut *self.model.get() })
    }

    fn tensor(&self, input: bool, at: usize, to: *mut TensorC) -> Fallible<()> {
        self.with(|model| {
            let texts = &self.texts[model.variant()];
            let compiled = model.compiled();
            let (ids, names, kind) = match input {
                true => (compiled.inputs(), &texts.inputs, "input"),
                false => (compiled.outputs(), &texts.outputs, "output"),
            };
            let Some(id) = ids.get(at) else {
                return bad(format!(
                    "there is no {kind} {at}: the model has {}",
                    ids.len()
                ));
            };
            if to.is_null() {
                return bad("the place for the tensor is a null pointer");
            }
            let info = compiled.tensor(*id);
            let tensor = TensorC {
                name: names[at].as_ptr(),
                ty: type_number(info.dtype),
                rank: info.shape.len(),
                shape: info.shape.as_ptr(),
                bytes: info.span_bytes().unwrap_or(0) as usize,
            };
            // SAFETY: the caller gives room for one.
            unsafe { to.write(tensor) };
            Ok(())
        })
    }
}

/// The numbers of ONNX.
const TYPES: [(DType, i32); 13] = [
    (DType::F32, 1),
    (DType::U8, 2),
    (DType::I8, 3),
    (DType::U16, 4),
    (DType::I16, 5),
    (DType::I32, 6),
    (DType::I64, 7),
    (DType::Bool, 9),
    (DType::F16, 10),
    (DType::F64, 11),
    (DType::U32, 12),
    (DType::U64, 13),
    (DType::BF16, 16),
];

fn type_number(dtype: DType) -> i32 {
    let known = TYPES.iter().find(|(own, _)| *own == dtype);
    known.map_or(0, |(_, number)| *number)
}

/// The version of this library.
#[unsafe(no_mangle)]
pub extern "C" fn tunesmith_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no zeros"),
        };
    VERSION.as_ptr()
}

/// Why the last call of this thread failed.
#[unsafe(no_mangle)]
pub extern "C" fn tunesmith_error() -> *const c_char {
    ERROR.with(|e| e.borrow().as_ptr())
}

/// Loads a model.
///
/// # Safety
/// `path` is null or a text that ends with a zero; `to` is null or has room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tunesmith_load(
    path: *const c_char,
    threads: u32,
    to: *mut *mut ModelC,
) -> Status {
    status(|| {
        // SAFETY: as the caller promises.
        let path = unsafe { words(path, "the path") }?;
        if to.is_null() {
            return bad("the place for the model is a null pointer");
        }
        let model = load(Path::new(path), threads).map_err(|why| (CANNOT_LOAD, why))?;
        // SAFETY: it has room for a pointer.
        unsafe { to.write(Box::into_raw(Box::new(model))) };
        Ok(())
    })
}

fn load(path: &Path, threads: u32) -> Result<ModelC, String> {
    let variants = Variants::load(path).map_err(|e| e.to_string())?;
    let threads = match threads {
        0 => usual_threads(&variants),
        n => n as usize,
    };
    let pool = Pool::new(threads).map_err(|e| e.to_string())?;
    let model = Model::of(Arc::new(variants), Arc::new(pool)).map_err(|e| e.to_string())?;
    let variants = model.variants();
    let texts = variants.models().iter().enumerate().map(|(at, compiled)| {
        let names = |ids: &[runtime::TensorId]| {
            let names = ids.iter().map(|id| text(&compiled.tensor(*id).name));
            names.collect()
        };
        Texts {
            label: text(&variants.label(at)),
            inputs: names(compiled.inputs()),
            outputs: names(compiled.outputs()),
        }
    });
    Ok(ModelC {
        name: text(model.compiled().name()),
        texts: texts.collect(),
        busy: AtomicBool::new(false),
        model: UnsafeCell::new(model),
    })
}

/// The threads that a model was compiled for, or else one for each CPU.
pub fn usual_threads(variants: &Variants) -> usize {
    let own = variants.models()[0].threads();
    own.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Frees a model.
///
/// # Safety
/// The handle is null or of a model that was loaded and not freed, and no call with it runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tunesmith_free(model: *mut ModelC) {
    if !model.is_null() {
        // SAFETY: it came from a box, and nobody else has it.
        let model = unsafe { Box::from_raw(model) };
        _ = catch_unwind(AssertUnwindSafe(|| drop(model)));
    }
}

/// What `of` gives of a model; `otherwise` if there is none, or a call with it runs.
///
/// # Safety
/// As [`handle`].
unsafe fn query<T>(
    model: *const ModelC,
    otherwise: T,
    of: impl FnOnce(&ModelC, &mut Model) -> T,
) -> T {
    let mut found = None;
    status(|| {
        // SAFETY: as the caller promises.
        let handle = unsafe { handle(model) }?;
        found = Some(handle.with(|model| Ok(of(handle, model)))?);
        Ok(())
    });
    found.unwrap_or(otherwise)
}

/// The name of the model.
///
/// # Safety
/// The handle is null or of a model that was loaded and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tunesmith_name(model: *const ModelC) -> *const c_char {
    // SAFETY: as the caller promises.
    unsafe { query(model, null(), |handle, _| handle.name.as_ptr()) }
}

/// Inputs of the model.
///
/// # Safety
/// The handle is null or of a model that was loaded and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tunesmith_input_count(model: *const ModelC) -> usize {
    // SAFETY: as the caller promises.
    unsafe { query(model, 0, |_, model| model.compiled().inputs().len()) }
}

/// Outputs of the model.
///
/// # Safety
/// The handle is null or of a model that was loaded and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tunesmith_output_count(model: *const ModelC) -> usize {
    // SAFETY: as the caller promises.
    unsafe { query(model, 0, |_, model| model.compiled().outputs().len()) }
}

/// What an input is.
///
/// # Safety
/// The handle is null or of a model that was loaded and not freed; `to` is null or has room for a tensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tunesmith_input_tensor(
    model: *const ModelC,
    input: usize,
    to: *mut TensorC,
) -> Status {
    // SAFETY: as the caller promises.
    status(|| unsafe { handle(model) }?.tensor(true, input, to))
}

/// What an output is.
///
/// # Safety
/// As [`tunesmith_input_tensor`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tunesmith_output_tensor(
    model: *const ModelC,
    output: usize,
    to: *mut TensorC,
) -> Status {
    // SAFETY: as the caller promises.
    status(|| unsafe { handle(model) }?.tensor(false, output, to))
}

/// Variants of the model.
///
/// # Safety
/// The handle is null or of a model that was loaded and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tunesmith_variant_count(model: *const ModelC) -> usize {
    // SAFETY: as the caller promises.
    unsafe { query(model, 0, |handle, _| handle.texts.len()) }
}

/// What tells a variant from others.
///
/// # Safety
/// The handle is null or of a model that was loaded and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tunesmith_variant_label(
    model: *const ModelC,
    variant: usize,
) -> *const c_char {
    let label = |handle: &ModelC| {
        handle
            .texts
            .get(variant)
            .map_or(null(), |t| t.label.as_ptr())
    };
    // SAFETY: as the caller promises.
    unsafe { query(model, null(), |handle, _| label(handle)) }
}

/// Selects a variant.
///
/// # Safety
/// The handle is null or of a model that was loaded and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tunesmith_select(model: *mut ModelC, variant: usize) -> Status {
    status(|| {
        // SAFETY: as the caller promises.
        let handle = unsafe { handle(model) }?;
        let variants = handle.texts.len();
        if variant >= variants {
            return bad(format!(
                "there is no variant {variant}: the model has {variants}"
            ));
        }
        handle.with(|model| {
            model.select(variant);
            Ok(())
        })
    })
}

/// Where an input is.
///
/// # Safety
/// The handle is null or of a model that was loaded and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tunesmith_input(model: *mut ModelC, input: usize) -> *mut c_void {
    let place = |model: &mut Model| match input < model.compiled().inputs().len() {
        true => model.input_mut(input).as_mut_ptr().cast(),
        false => null::<c_void>().cast_mut(),
    };
    // SAFETY: as the caller promises.
    unsafe { query(model, null::<c_void>().cast_mut(), |_, model| place(model)) }
}

/// Where an output is.
///
/// # Safety
/// The handle is null or of a model that was loaded and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tunesmith_output(model: *const ModelC, output: usize) -> *const c_void {
    let place = |model: &Model| match output < model.compiled().outputs().len() {
        true => model.output(output).as_ptr().cast(),
        false => null(),
    };
    // SAFETY: as the caller promises.
    unsafe { query(model, null(), |_, model| place(model)) }
}

fn cannot_run(e: RunError) -> (Status, String) {
    (CANNOT_RUN, e.to_string())
}

fn invoke(model: &mut Model) -> Fallible<()> {
    model.invoke().map_err(cannot_run)
}

/// One inference on what the inputs hold.
///
/// # Safety
/// The handle is null or of a model that was loaded and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tunesmith_invoke(model: *mut ModelC) -> Status {
    // SAFETY: as the caller promises.
    status(|| unsafe { handle(model) }?.with(invoke))
}

/// Copies the inputs in, runs, and copies the outputs out. A null pointer lets a state keep what it holds.
///
/// # Safety
/// The handle is null or of a model that was loaded and not freed; `inputs` and `outputs` are null or have a pointer for
/// each input and output, null or to as many bytes as the tensor has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tunesmith_run(
    model: *mut ModelC,
    inputs: *const *const c_void,
    outputs: *const *mut c_void,
) -> Status {
    status(|| {
        if inputs.is_null() || outputs.is_null() {
            return bad("the inputs, or the outputs, are a null pointer");
        }
        // SAFETY: as the caller promises.
        unsafe { handle(model) }?.with(|model| {
            let compiled = model.compiled().clone();
            let (ins, outs) = (compiled.inputs().len(), compiled.outputs().len());
            // SAFETY: there is a pointer for each.
            let (from, to) = unsafe {
                (
                    std::slice::from_raw_parts(inputs, ins),
                    std::slice::from_raw_parts(outputs, outs),
                )
            };
            let is_state = |i: usize| compiled.states().iter().any(|s| s.input == i);
            if let Some(i) = (0..ins).find(|i| from[*i].is_null() && !is_state(*i)) {
                return bad(format!("input {i} is a null pointer"));
            }
            if let Some(i) = to.iter().position(|p| p.is_null()) {
                return bad(format!("output {i} is a null pointer"));
            }
            for (i, from) in from.iter().enumerate() {
                if from.is_null() {
                    continue;
                }
                let to = model.input_mut(i);
                // SAFETY: the caller gives as many bytes.
                unsafe { from.cast::<u8>().copy_to(to.as_mut_ptr(), to.len()) };
            }
            invoke(model)?;
            for (i, to) in to.iter().enumerate() {
                let from = model.output(i);
                // SAFETY: the caller gives room for as many bytes.
                unsafe { to.cast::<u8>().copy_from(from.as_ptr(), from.len()) };
            }
            Ok(())
        })
    })
}
