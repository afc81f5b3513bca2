; What an executable of a whole model runs, for any target.
;
; `description` is written for each executable. All of it are words of 64 bits; texts and lists are an address and a number.
; The command has a file for each input and then one for each output, or `--bench`, a number, and perhaps the inputs.

; A text that is not ended by a zero.
%text = type { ptr, i64 }

; The tensor's bytes, the header of its .npy file, what is compared of that, and what is said of another file.
%tensor = type { %text, %text, i64, %text }

; A kernel, its arguments, and what is said when it fails.
%call = type { ptr, ptr, %text }

; Inputs, outputs, calls in their order, the workspace, the usage, and memory for the longest header.
%description = type { ptr, i64, ptr, i64, ptr, i64, ptr, %text, ptr }

@description = external constant %description
@bench = private constant [8 x i8] c"--bench\00"
@not_opened = private constant [18 x i8] c" cannot be opened\0A"

define private i64 @number_of(i32 %field) alwaysinline {
  %at = getelementptr [10 x i64], ptr @description, i64 0, i32 %field
  %value = load i64, ptr %at
  ret i64 %value
}

define private ptr @address_of(i32 %field) alwaysinline {
  %at = getelementptr [10 x ptr], ptr @description, i64 0, i32 %field
  %value = load ptr, ptr %at
  ret ptr %value
}

define void @run(i64 %words, ptr %command) noreturn {
entry:
  %inputs = call i64 @number_of(i32 1)
  %outputs = call i64 @number_of(i32 3)
  %some = icmp ugt i64 %words, 1
  br i1 %some, label %named, label %files
named:
  %first.at = getelementptr ptr, ptr %command, i64 1
  %first = load ptr, ptr %first.at
  %is_bench = call i1 @equal(ptr %first, ptr @bench)
  br i1 %is_bench, label %bench, label %files
files:
  %named.inputs = add i64 %inputs, 1
  %wanted = add i64 %named.inputs, %outputs
  %complete = icmp eq i64 %words, %wanted
  br i1 %complete, label %once, label %usage
once:
  %inputs.at = getelementptr ptr, ptr %command, i64 1
  call void @read_inputs(ptr %inputs.at)
  call void @mark_begin()
  call void @call_kernels()
  call void @mark_end()
  %outputs.at = getelementptr ptr, ptr %command, i64 %named.inputs
  call void @write_outputs(ptr %outputs.at)
  call void @exit(i64 0)
  unreachable
bench:
  %bench.all = add i64 %inputs, 3
  %given = icmp eq i64 %words, %bench.all
  %none = icmp eq i64 %words, 3
  %fits = or i1 %given, %none
  br i1 %fits, label %number, label %usage
number:
  %number.at = getelementptr ptr, ptr %command, i64 2
  %number.text = load ptr, ptr %number.at
  %repeats = call i64 @number(ptr %number.text)
  %positive = icmp sgt i64 %repeats, 0
  br i1 %positive, label %fill, label %usage
fill:
  br i1 %given, label %read, label %time
read:
  %read.at = getelementptr ptr, ptr %command, i64 3
  call void @read_inputs(ptr %read.at)
  br label %time
time:
  call void @time_calls(i64 %repeats)
  call void @exit(i64 0)
  unreachable
usage:
  %usage.text = call ptr @address_of(i32 7)
  %usage.bytes = call i64 @number_of(i32 8)
  call void @print(i64 2, ptr %usage.text, i64 %usage.bytes)
  call void @exit(i64 2)
  unreachable
}

; Whether two texts that zeros end are the same.
define private i1 @equal(ptr %a, ptr %b) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %same ]
  %a.at = getelementptr i8, ptr %a, i64 %i
  %b.at = getelementptr i8, ptr %b, i64 %i
  %a.byte = load i8, ptr %a.at
  %b.byte = load i8, ptr %b.at
  %equal = icmp eq i8 %a.byte, %b.byte
  br i1 %equal, label %same, label %done
same:
  %next = add i64 %i, 1
  %end = icmp eq i8 %a.byte, 0
  br i1 %end, label %done, label %loop
done:
  ret i1 %equal
}

; The value of up to nine decimal digits that a zero ends; 0 of anything else.
define private i64 @number(ptr %text) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %digit ]
  %value = phi i64 [ 0, %entry ], [ %longer, %digit ]
  %at = getelementptr i8, ptr %text, i64 %i
  %byte = load i8, ptr %at
  %end = icmp eq i8 %byte, 0
  br i1 %end, label %done, label %character
character:
  %from_zero = sub i8 %byte, 48
  %is_digit = icmp ult i8 %from_zero, 10
  %short = icmp ult i64 %i, 9
  %good = and i1 %is_digit, %short
  br i1 %good, label %digit, label %wrong
digit:
  %wide = zext i8 %from_zero to i64
  %tens = mul i64 %value, 10
  %longer = add i64 %tens, %wide
  %next = add i64 %i, 1
  br label %loop
wrong:
  ret i64 0
done:
  ret i64 %value
}

define private i64 @length(ptr %text) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr i8, ptr %text, i64 %i
  %byte = load i8, ptr %at
  %next = add i64 %i, 1
  %end = icmp eq i8 %byte, 0
  br i1 %end, label %done, label %loop
done:
  ret i64 %i
}

; Says something of a file, and ends the program.
define private void @refuse(ptr %path, ptr %why, i64 %bytes) noreturn {
  %length = call i64 @length(ptr %path)
  call void @print(i64 2, ptr %path, i64 %length)
  call void @print(i64 2, ptr %why, i64 %bytes)
  call void @exit(i64 1)
  unreachable
}

; A file that is open, with the flags of the system; one that is made may be read by all.
define private i64 @open(ptr %path, i64 %flags) {
  %n = call i64 @number_open()
  %at = ptrtoint ptr %path to i64
  %file = call i64 @system_call(i64 %n, i64 -100, i64 %at, i64 %flags, i64 420)
  %failed = icmp slt i64 %file, 0
  br i1 %failed, label %stop, label %fine
stop:
  call void @refuse(ptr %path, ptr @not_opened, i64 18)
  unreachable
fine:
  ret i64 %file
}

; How many bytes of a file were read: fewer at its end.
define private i64 @read(i64 %file, ptr %to, i64 %bytes) {
entry:
  %n = call i64 @number_read()
  br label %loop
loop:
  %done = phi i64 [ 0, %entry ], [ %next, %some ]
  %at = getelementptr i8, ptr %to, i64 %done
  %address = ptrtoint ptr %at to i64
  %rest = sub i64 %bytes, %done
  %more = icmp ne i64 %rest, 0
  br i1 %more, label %again, label %finished
again:
  %count = call i64 @system_call(i64 %n, i64 %file, i64 %address, i64 %rest, i64 0)
  %got = icmp sgt i64 %count, 0
  br i1 %got, label %some, label %finished
some:
  %next = add i64 %done, %count
  br label %loop
finished:
  ret i64 %done
}

; Whether a file begins as the .npy file of a tensor does. Bytes 8 and 9 are how long its header is.
define private i1 @is_header(ptr %found, ptr %wanted, i64 %bytes) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %same ]
  %more = icmp ult i64 %i, %bytes
  br i1 %more, label %byte, label %yes
byte:
  %found.at = getelementptr i8, ptr %found, i64 %i
  %wanted.at = getelementptr i8, ptr %wanted, i64 %i
  %found.byte = load i8, ptr %found.at
  %wanted.byte = load i8, ptr %wanted.at
  %equal = icmp eq i8 %found.byte, %wanted.byte
  %pair = and i64 %i, -2
  %length = icmp eq i64 %pair, 8
  %passes = or i1 %equal, %length
  br i1 %passes, label %same, label %no
same:
  %next = add i64 %i, 1
  br label %loop
yes:
  ret i1 true
no:
  ret i1 false
}

; A .npy file of the tensor's type and shape, or its bytes and nothing else.
define private void @read_input(%tensor %tensor, ptr %path) {
  %to = extractvalue %tensor %tensor, 0, 0
  %bytes = extractvalue %tensor %tensor, 0, 1
  %header = extractvalue %tensor %tensor, 1, 0
  %compared = extractvalue %tensor %tensor, 2
  %scratch = call ptr @address_of(i32 9)
  %file = call i64 @open(ptr %path, i64 0)
  %begin = call i64 @read(i64 %file, ptr %scratch, i64 %compared)
  %long = icmp eq i64 %begin, %compared
  %same = call i1 @is_header(ptr %scratch, ptr %header, i64 %compared)
  %npy = and i1 %long, %same
  %length.at = getelementptr i8, ptr %scratch, i64 8
  %length = load i16, ptr %length.at
  %length.wide = zext i16 %length to i64
  %behind = add i64 %length.wide, 10
  %skipped = select i1 %npy, i64 %behind, i64 0
  %n = call i64 @number_seek()
  %ignored = call i64 @system_call(i64 %n, i64 %file, i64 %skipped, i64 0, i64 0)
  %got = call i64 @read(i64 %file, ptr %to, i64 %bytes)
  %all = icmp eq i64 %got, %bytes
  %further = call i64 @read(i64 %file, ptr %scratch, i64 1)
  %ends = icmp eq i64 %further, 0
  %fits = and i1 %all, %ends
  br i1 %fits, label %fine, label %wrong
wrong:
  %why = extractvalue %tensor %tensor, 3, 0
  %why.bytes = extractvalue %tensor %tensor, 3, 1
  call void @refuse(ptr %path, ptr %why, i64 %why.bytes)
  unreachable
fine:
  ret void
}

; A new .npy file.
define private void @write_output(%tensor %tensor, ptr %path) {
  %from = extractvalue %tensor %tensor, 0, 0
  %bytes = extractvalue %tensor %tensor, 0, 1
  %header = extractvalue %tensor %tensor, 1, 0
  %header.bytes = extractvalue %tensor %tensor, 1, 1
  %file = call i64 @open(ptr %path, i64 577)
  call void @print(i64 %file, ptr %header, i64 %header.bytes)
  call void @print(i64 %file, ptr %from, i64 %bytes)
  ret void
}

define private void @read_inputs(ptr %paths) {
entry:
  %tensors = call ptr @address_of(i32 0)
  %count = call i64 @number_of(i32 1)
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %one ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %done
one:
  %tensor.at = getelementptr %tensor, ptr %tensors, i64 %i
  %tensor = load %tensor, ptr %tensor.at
  %path.at = getelementptr ptr, ptr %paths, i64 %i
  %path = load ptr, ptr %path.at
  call void @read_input(%tensor %tensor, ptr %path)
  %next = add i64 %i, 1
  br label %loop
done:
  ret void
}

define private void @write_outputs(ptr %paths) {
entry:
  %tensors = call ptr @address_of(i32 2)
  %count = call i64 @number_of(i32 3)
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %one ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %done
one:
  %tensor.at = getelementptr %tensor, ptr %tensors, i64 %i
  %tensor = load %tensor, ptr %tensor.at
  %path.at = getelementptr ptr, ptr %paths, i64 %i
  %path = load ptr, ptr %path.at
  call void @write_output(%tensor %tensor, ptr %path)
  %next = add i64 %i, 1
  br label %loop
done:
  ret void
}

; All kernels. One that fails is named, and ends the program with its code.
define private void @call_kernels() {
entry:
  %calls = call ptr @address_of(i32 4)
  %count = call i64 @number_of(i32 5)
  %workspace = call ptr @address_of(i32 6)
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %fine ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %done
one:
  %call.at = getelementptr %call, ptr %calls, i64 %i
  %call = load %call, ptr %call.at
  %kernel = extractvalue %call %call, 0
  %arguments = extractvalue %call %call, 1
  %code = call i32 %kernel(ptr @context, ptr %arguments, ptr %workspace)
  %failed = icmp ne i32 %code, 0
  br i1 %failed, label %stop, label %fine
stop:
  %why = extractvalue %call %call, 2, 0
  %why.bytes = extractvalue %call %call, 2, 1
  call void @print(i64 2, ptr %why, i64 %why.bytes)
  %wide = zext i32 %code to i64
  call void @exit(i64 %wide)
  unreachable
fine:
  %next = add i64 %i, 1
  br label %loop
done:
  ret void
}

; A line with the nanoseconds of each inference, after one that is not timed.
define private void @time_calls(i64 %repeats) {
entry:
  call void @call_kernels()
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %again ]
  %more = icmp ult i64 %i, %repeats
  br i1 %more, label %again, label %done
again:
  %begin = call i64 @clock()
  call void @call_kernels()
  %end = call i64 @clock()
  %time = sub i64 %end, %begin
  call void @print_number(i64 %time)
  %next = add i64 %i, 1
  br label %loop
done:
  ret void
}
