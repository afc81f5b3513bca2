; A kernel that refers to code and constants in every way that generated code may. Input and output are 64 numbers.

@bytes = private unnamed_addr constant [8 x i8] c"\01\02\03\05\07\0B\0D\11", align 8
@halves = private unnamed_addr constant [4 x i16] [i16 300, i16 301, i16 302, i16 303], align 8
@words = private unnamed_addr constant [4 x i32] [i32 70000, i32 70001, i32 70002, i32 70003], align 8
@longs = private unnamed_addr constant [2 x i64] [i64 5000000000, i64 6000000000], align 8
@vector = private unnamed_addr constant <4 x i32> <i32 9, i32 8, i32 7, i32 6>, align 16
@exported = constant [2 x i64] [i64 77, i64 78]
@calls = private constant [2 x ptr] [ptr @twice, ptr @thrice]
@copy = private constant [2 x ptr] [ptr @memcpy, ptr @memmove]

declare ptr @memcpy(ptr, ptr, i64)
declare ptr @memmove(ptr, ptr, i64)
declare ptr @memset(ptr, i32, i64)

define private i64 @twice(i64 %x) noinline {
  %y = mul i64 %x, 2
  ret i64 %y
}

define i64 @thrice(i64 %x) noinline {
  %y = mul i64 %x, 3
  ret i64 %y
}

define private i64 @jump(i64 %x, i64 %y) noinline {
  switch i64 %x, label %other [
    i64 0, label %a
    i64 1, label %b
    i64 2, label %c
    i64 3, label %d
    i64 4, label %e
    i64 5, label %f
  ]
a:
  %va = add i64 %y, 1
  ret i64 %va
b:
  %vb = mul i64 %y, %y
  ret i64 %vb
c:
  %vc = call i64 @twice(i64 %y)
  %vc1 = add i64 %vc, 3
  ret i64 %vc1
d:
  %vd = xor i64 %y, 12
  ret i64 %vd
e:
  %ve = shl i64 %y, 3
  ret i64 %ve
f:
  %vf = sub i64 7, %y
  ret i64 %vf
other:
  %vo = call i64 @thrice(i64 %y)
  ret i64 %vo
}

define private i32 @body(ptr %context, ptr %out, i64 %begin, i64 %end, i32 %worker) {
  %sum = mul i64 %end, 1000
  %all = add i64 %sum, %begin
  %wide = sext i32 %worker to i64
  %more = add i64 %all, %wide
  store i64 %more, ptr %out
  ret i32 0
}

define i32 @kernel(ptr %context, ptr %arguments, ptr %workspace) {
entry:
  %in = load ptr, ptr %arguments
  %out.at = getelementptr ptr, ptr %arguments, i64 1
  %out = load ptr, ptr %out.at
  ; Odd numbers of bytes, so that words and bytes are moved, forwards and backwards within the output.
  %0 = call ptr @memset(ptr %out, i32 171, i64 501)
  %1 = call ptr @memcpy(ptr %out, ptr %in, i64 161)
  %o3 = getelementptr i8, ptr %out, i64 3
  %2 = call ptr @memmove(ptr %o3, ptr %out, i64 85)
  %o90 = getelementptr i8, ptr %out, i64 90
  %o101 = getelementptr i8, ptr %out, i64 101
  %3 = call ptr @memmove(ptr %o90, ptr %o101, i64 45)
  %4 = load volatile ptr, ptr getelementptr (i8, ptr @copy, i64 8)
  %o160 = getelementptr i8, ptr %out, i64 160
  %5 = call ptr %4(ptr %o160, ptr @exported, i64 16)
  ; Constants of every size.
  %b = load volatile i8, ptr getelementptr (i8, ptr @bytes, i64 3)
  %h = load volatile i16, ptr getelementptr (i8, ptr @halves, i64 2)
  %w = load volatile i32, ptr getelementptr (i8, ptr @words, i64 8)
  %l = load volatile i64, ptr getelementptr (i8, ptr @longs, i64 8)
  %v = load volatile <4 x i32>, ptr @vector
  %b.wide = sext i8 %b to i64
  %h.wide = sext i16 %h to i64
  %w.wide = sext i32 %w to i64
  %s0 = add i64 %b.wide, %h.wide
  %s1 = add i64 %s0, %w.wide
  %s2 = add i64 %s1, %l
  %o22 = getelementptr i64, ptr %out, i64 22
  store i64 %s2, ptr %o22
  %o24 = getelementptr i64, ptr %out, i64 24
  store <4 x i32> %v, ptr %o24, align 8
  ; Addresses of functions.
  %f = load volatile ptr, ptr getelementptr (i8, ptr @calls, i64 8)
  %s3 = call i64 %f(i64 14)
  %g = load volatile ptr, ptr @calls
  %s4 = call i64 %g(i64 %s3)
  %o26 = getelementptr i64, ptr %out, i64 26
  store i64 %s4, ptr %o26
  ; One worker.
  %each.at = getelementptr i8, ptr %context, i64 8
  %each = load ptr, ptr %each.at
  %o27 = getelementptr i64, ptr %out, i64 27
  %code = call i32 %each(ptr %context, ptr @body, ptr %o27, i64 9)
  br label %jumps
jumps:
  %i = phi i64 [ 0, %entry ], [ %next, %jumps ]
  %value = call i64 @jump(i64 %i, i64 13)
  %slot = add i64 %i, 30
  %at = getelementptr i64, ptr %out, i64 %slot
  store i64 %value, ptr %at
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 8
  br i1 %more, label %jumps, label %done
done:
  ret i32 %code
}
