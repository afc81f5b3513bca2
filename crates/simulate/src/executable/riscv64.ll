module asm ".globl start"
module asm "start:"
module asm "  ld a0, 0(sp)"
module asm "  addi a1, sp, 8"
module asm ".Lstack:"
module asm "  auipc t0, %got_pcrel_hi(stack)"
module asm "  ld sp, %pcrel_lo(.Lstack)(t0)"
module asm "  mv s0, zero"
module asm "  call run"
module asm "  unimp"

define private i64 @system_call(i64 %n, i64 %a, i64 %b, i64 %c, i64 %d) {
  %result = call i64 asm sideeffect "ecall", "={a0},{a7},{a0},{a1},{a2},{a3},~{memory}"(i64 %n, i64 %a, i64 %b, i64 %c, i64 %d)
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
  call void asm sideeffect "slti x0, x0, 0x5a1", "~{memory}"()
  ret void
}

define private void @mark_end() alwaysinline {
  call void asm sideeffect "slti x0, x0, 0x5a2", "~{memory}"()
  ret void
}
