; What an executable of one kernel runs, for any target.
;
; `description` is written for each executable. All of it are words of 64 bits: how often the kernel is
; timed, the number of buffers, the address of the kernel's arguments, that of its workspace, and for each
; buffer its address, its bytes, the address of what it is filled with, and the bytes of that (0: nothing).

%buffer = type { ptr, i64, ptr, i64 }
%description = type { i64, i64, ptr, ptr, [0 x %buffer] }

@description = external constant %description

declare i32 @kernel(ptr, ptr, ptr)

; Without another word in the command the kernel is called once, and the buffers that it wrote are printed.
; Else each line that is printed has the nanoseconds of a call.
define void @run(i64 %words, ptr %command) noreturn {
  call void @fill()
  %timed = icmp ugt i64 %words, 1
  br i1 %timed, label %time, label %once
once:
  call void @mark_begin()
  %code = call i32 @call_kernel()
  call void @mark_end()
  call void @check(i32 %code)
  call void @print_buffers()
  call void @exit(i64 0)
  unreachable
time:
  call void @time_calls()
  call void @exit(i64 0)
  unreachable
}

define private i32 @call_kernel() alwaysinline {
  %arguments.at = getelementptr %description, ptr @description, i64 0, i32 2
  %arguments = load ptr, ptr %arguments.at
  %workspace.at = getelementptr %description, ptr @description, i64 0, i32 3
  %workspace = load ptr, ptr %workspace.at
  %code = call i32 @kernel(ptr @context, ptr %arguments, ptr %workspace)
  ret i32 %code
}

; A kernel that failed ends the program with the kernel's code.
define private void @check(i32 %code) {
  %failed = icmp ne i32 %code, 0
  br i1 %failed, label %stop, label %fine
stop:
  %wide = zext i32 %code to i64
  call void @exit(i64 %wide)
  unreachable
fine:
  ret void
}

define private void @time_calls() {
entry:
  %warm = call i32 @call_kernel()
  call void @check(i32 %warm)
  %repeats = load i64, ptr @description
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %again ]
  %more = icmp ult i64 %i, %repeats
  br i1 %more, label %again, label %done
again:
  %begin = call i64 @clock()
  %code = call i32 @call_kernel()
  %end = call i64 @clock()
  %time = sub i64 %end, %begin
  call void @print_number(i64 %time)
  %next = add i64 %i, 1
  br label %loop
done:
  ret void
}

define private ptr @buffer(i64 %i) {
  %at = getelementptr %description, ptr @description, i64 0, i32 4, i64 %i
  ret ptr %at
}

define private i64 @buffers() {
  %at = getelementptr %description, ptr @description, i64 0, i32 1
  %count = load i64, ptr %at
  ret i64 %count
}

; Repeats in each buffer what it is filled with.
define private void @fill() {
entry:
  %count = call i64 @buffers()
  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %i.next, %filled ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %done
one:
  %entry.at = call ptr @buffer(i64 %i)
  %values = load %buffer, ptr %entry.at
  %to = extractvalue %buffer %values, 0
  %bytes = extractvalue %buffer %values, 1
  %from = extractvalue %buffer %values, 2
  %period = extractvalue %buffer %values, 3
  %none = icmp eq i64 %period, 0
  br i1 %none, label %filled, label %copy
copy:
  %at = phi i64 [ 0, %one ], [ %at.next, %chunk ]
  %left = icmp ult i64 %at, %bytes
  br i1 %left, label %chunk, label %filled
chunk:
  %rest = sub i64 %bytes, %at
  %whole = icmp ult i64 %period, %rest
  %size = select i1 %whole, i64 %period, i64 %rest
  %place = getelementptr i8, ptr %to, i64 %at
  %ignored = call ptr @memcpy(ptr %place, ptr %from, i64 %size)
  %at.next = add i64 %at, %size
  br label %copy
filled:
  %i.next = add i64 %i, 1
  br label %each
done:
  ret void
}

; Prints the bytes of buffers that nothing was filled in.
define private void @print_buffers() {
entry:
  %count = call i64 @buffers()
  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %i.next, %printed ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %done
one:
  %entry.at = call ptr @buffer(i64 %i)
  %values = load %buffer, ptr %entry.at
  %from = extractvalue %buffer %values, 0
  %bytes = extractvalue %buffer %values, 1
  %period = extractvalue %buffer %values, 3
  %output = icmp eq i64 %period, 0
  br i1 %output, label %print, label %printed
print:
  call void @print(i64 1, ptr %from, i64 %bytes)
  br label %printed
printed:
  %i.next = add i64 %i, 1
  br label %each
done:
  ret void
}
