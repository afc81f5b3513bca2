module asm ".globl start"
module asm "start:"
module asm "  ldr x0, [sp]"
module asm "  add x1, sp, #8"
module asm "  adrp x2, :got:stack"
module asm "  ldr x2, [x2, :got_lo12:stack]"
module asm "  mov sp, x2"
module asm "  mov x29, xzr"
module asm "  bl run"
module asm "  brk #0"

define private i64 @system_call(i64 %n, i64 %a, i64 %b, i64 %c, i64 %d) {
  %result = call i64 asm sideeffect "svc #0", "={x0},{x8},{x0},{x1},{x2},{x3},~{memory}"(i64 %n, i64 %a, i64 %b, i64 %c, i64 %d)
  ret i64 %result
}

define private i64 @number_write() alwaysinline {
  ret i64 64
}

define private i64 @number_open() alwaysinline {
  ret i64 56
}

define private i64 @number_read() alwaysinline {
  ret i64 63
}

define private i64 @number_seek() alwaysinline {
  ret i64 62
}

define private i64 @number_exit() alwaysinline {
  ret i64 94
}

define private i64 @number_clock() alwaysinline {
  ret i64 113
}

define private void @mark_begin() alwaysinline {
  call void asm sideeffect "hint #0x71", "~{memory}"()
  ret void
}

define private void @mark_end() alwaysinline {
  call void asm sideeffect "hint #0x72", "~{memory}"()
  ret void
}
