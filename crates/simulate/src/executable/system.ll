; What all executables have, for any target: it needs no library and keeps no state.
;
; The file of the target has the start, which calls `run` with the number of words of the command and where they are, and:
; system calls of one to four arguments, their numbers, and no-operations that mark the call that is counted.

@context = private constant { i32, i32, ptr, ptr } { i32 1, i32 1, ptr @parallel_for, ptr null }, align 8

; One worker does all iterations.
define private i32 @parallel_for(ptr %context, ptr %body, ptr %environment, i64 %extent) {
  %some = icmp sgt i64 %extent, 0
  br i1 %some, label %call, label %none
call:
  %code = call i32 %body(ptr %context, ptr %environment, i64 0, i64 %extent, i32 0)
  ret i32 %code
none:
  ret i32 0
}

define private void @exit(i64 %code) noreturn {
  %n = call i64 @number_exit()
  %ignored = call i64 @system_call(i64 %n, i64 %code, i64 0, i64 0, i64 0)
  unreachable
}

; Nanoseconds of the clock that never goes back.
define private i64 @clock() {
  %now = alloca { i64, i64 }
  %n = call i64 @number_clock()
  %at = ptrtoint ptr %now to i64
  %ignored = call i64 @system_call(i64 %n, i64 1, i64 %at, i64 0, i64 0)
  %s = load i64, ptr %now
  %ns.at = getelementptr i8, ptr %now, i64 8
  %ns = load i64, ptr %ns.at
  %s.ns = mul i64 %s, 1000000000
  %all = add i64 %s.ns, %ns
  ret i64 %all
}

; A line with the decimal digits, which are written from the last one on.
define private void @print_number(i64 %value) {
entry:
  %text = alloca [24 x i8]
  %end = getelementptr i8, ptr %text, i64 23
  store i8 10, ptr %end
  br label %loop
loop:
  %rest = phi i64 [ %value, %entry ], [ %tenth, %loop ]
  %before = phi i64 [ 23, %entry ], [ %at, %loop ]
  %tenth = udiv i64 %rest, 10
  %tens = mul i64 %tenth, 10
  %digit = sub i64 %rest, %tens
  %character = add i64 %digit, 48
  %byte = trunc i64 %character to i8
  %at = add i64 %before, -1
  %place = getelementptr i8, ptr %text, i64 %at
  store i8 %byte, ptr %place
  %more = icmp ne i64 %tenth, 0
  br i1 %more, label %loop, label %print
print:
  %bytes = sub i64 24, %at
  call void @print(i64 1, ptr %place, i64 %bytes)
  ret void
}

; Writes bytes to an open file.
define private void @print(i64 %file, ptr %from, i64 %bytes) {
entry:
  %n = call i64 @number_write()
  br label %loop
loop:
  %done = phi i64 [ 0, %entry ], [ %next, %wrote ]
  %more = icmp ult i64 %done, %bytes
  br i1 %more, label %write, label %finished
write:
  %at = getelementptr i8, ptr %from, i64 %done
  %address = ptrtoint ptr %at to i64
  %rest = sub i64 %bytes, %done
  %written = call i64 @system_call(i64 %n, i64 %file, i64 %address, i64 %rest, i64 0)
  %failed = icmp sle i64 %written, 0
  br i1 %failed, label %stop, label %wrote
wrote:
  %next = add i64 %done, %written
  br label %loop
stop:
  call void @exit(i64 74)
  unreachable
finished:
  ret void
}

; Words and then bytes, from the first one on.
define ptr @memcpy(ptr %to, ptr %from, i64 %bytes) "no-builtins" {
entry:
  %words = and i64 %bytes, -8
  br label %long
long:
  %i = phi i64 [ 0, %entry ], [ %i.next, %word ]
  %more = icmp ult i64 %i, %words
  br i1 %more, label %word, label %short
word:
  %i.from = getelementptr i8, ptr %from, i64 %i
  %i.to = getelementptr i8, ptr %to, i64 %i
  %w = load i64, ptr %i.from, align 1
  store i64 %w, ptr %i.to, align 1
  %i.next = add i64 %i, 8
  br label %long
short:
  %j = phi i64 [ %words, %long ], [ %j.next, %byte ]
  %left = icmp ult i64 %j, %bytes
  br i1 %left, label %byte, label %done
byte:
  %j.from = getelementptr i8, ptr %from, i64 %j
  %j.to = getelementptr i8, ptr %to, i64 %j
  %b = load i8, ptr %j.from
  store i8 %b, ptr %j.to
  %j.next = add i64 %j, 1
  br label %short
done:
  ret ptr %to
}

; Where the target begins within the source, from the last byte on.
define ptr @memmove(ptr %to, ptr %from, i64 %bytes) "no-builtins" {
entry:
  %to.at = ptrtoint ptr %to to i64
  %from.at = ptrtoint ptr %from to i64
  %distance = sub i64 %to.at, %from.at
  %apart = icmp uge i64 %distance, %bytes
  br i1 %apart, label %forward, label %backward
forward:
  %copied = call ptr @memcpy(ptr %to, ptr %from, i64 %bytes)
  ret ptr %to
backward:
  %left = phi i64 [ %bytes, %entry ], [ %i, %byte ]
  %more = icmp ne i64 %left, 0
  br i1 %more, label %byte, label %done
byte:
  %i = add i64 %left, -1
  %i.from = getelementptr i8, ptr %from, i64 %i
  %i.to = getelementptr i8, ptr %to, i64 %i
  %b = load i8, ptr %i.from
  store i8 %b, ptr %i.to
  br label %backward
done:
  ret ptr %to
}

define ptr @memset(ptr %to, i32 %value, i64 %bytes) "no-builtins" {
entry:
  %byte = trunc i32 %value to i8
  %low = zext i8 %byte to i64
  %all = mul i64 %low, 72340172838076673
  %words = and i64 %bytes, -8
  br label %long
long:
  %i = phi i64 [ 0, %entry ], [ %i.next, %word ]
  %more = icmp ult i64 %i, %words
  br i1 %more, label %word, label %short
word:
  %i.to = getelementptr i8, ptr %to, i64 %i
  store i64 %all, ptr %i.to, align 1
  %i.next = add i64 %i, 8
  br label %long
short:
  %j = phi i64 [ %words, %long ], [ %j.next, %one ]
  %left = icmp ult i64 %j, %bytes
  br i1 %left, label %one, label %done
one:
  %j.to = getelementptr i8, ptr %to, i64 %j
  store i8 %byte, ptr %j.to
  %j.next = add i64 %j, 1
  br label %short
done:
  ret ptr %to
}
